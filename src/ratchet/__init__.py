"""Turn code repositories into verified reinforcement-learning environments."""

__version__ = "0.1.0"

"""The local policy: a checkpoint on this machine as a model. Only `engine.py` and `loading.py` load torch."""

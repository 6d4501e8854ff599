"""Training the next generation: supervised fine-tuning (`warm_start.py`) and reinforcement learning (`reinforce.py`).

`config.py` says what can be chosen, `worker.py` runs either in a process of its own. Importing this loads no torch.
"""

"""One turn: generation N builds environments, its successor learns in them, and the gate decides.

`turn.py` reads like the loop; `stages.py` has what each arrow does, `configuration.py` what can be chosen, `ledger.py`
what of a turn is on disk.
"""

"""One turn: generation N builds environments, its successor learns in them, and the gate decides.

`configuration.py` says what can be chosen, `lessons.py` how generation 0's solutions become a model's words,
`ledger.py` what of a turn is on disk.
"""

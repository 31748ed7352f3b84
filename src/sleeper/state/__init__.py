"""How the truth changes: a table's state, its transactions, its log and the optimistic commit.

Everything is computed from what is handed in; no module here knows which log it has.
"""

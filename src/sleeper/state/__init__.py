"""The state of a table, its transactions, the replay of its log, and the optimistic commit.

Results depend only on arguments; no module here depends on an adapter.
"""

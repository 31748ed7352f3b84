"""State stores: where the states of a table are kept, and how a commit replaces the newest."""

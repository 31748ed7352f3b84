"""The `sleeper` command: one thing of the package behind each command, and no rule of its own."""

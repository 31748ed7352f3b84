"""The `sleeper` command: each subcommand calls one method of the package and contains no rule."""

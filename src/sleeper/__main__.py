"""`python -m sleeper` is the command `sleeper`."""

from __future__ import annotations

from sleeper.interfaces.cli.main import main

if __name__ == "__main__":
    main()

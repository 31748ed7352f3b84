"""Work that a schedule starts in an instance that no process serves."""

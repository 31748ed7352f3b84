"""What should be done next: a state and settings in, decisions out as values. Pure."""

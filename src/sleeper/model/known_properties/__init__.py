"""Every property that Sleeper knows by name: kinds of values, and who has which."""

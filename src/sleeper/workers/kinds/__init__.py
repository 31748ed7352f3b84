"""A module for each kind of job: how its message is read, and how it runs."""

"""What `sleeper serve` is made of: worker processes, and work that is done now and then."""

"""What every program could use."""

"""What users open: an instance, which connects the other packages."""

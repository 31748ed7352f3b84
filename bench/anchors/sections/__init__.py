"""What is measured together, because it shares its data."""

"""What runs in the measured processes, under this checkout or an earlier one: public names only."""

"""An instance in AWS: its buckets, its table index, and what else it is made of."""

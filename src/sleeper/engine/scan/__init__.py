"""What reading ranges of data files with DataFusion is made of."""

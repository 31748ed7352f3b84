"""The parts of reading ranges of data files with DataFusion."""

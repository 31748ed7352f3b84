"""The parts of the sort: key order, runs on disk, ranges of what does not fit; and samples."""

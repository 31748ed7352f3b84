"""Pictures as SVG, and bars of progress."""

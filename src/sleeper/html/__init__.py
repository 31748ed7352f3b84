"""HTML of values, as text, and bars of progress: for notebooks and for the web page."""

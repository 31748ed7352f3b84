"""HTML of values, as text: for notebooks and for the web page."""

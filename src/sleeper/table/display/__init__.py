"""HTML and SVG of tables, results and states, for notebooks and the web page."""

"""Pictures as SVG, and values as HTML for notebooks."""

"""Converts values of Python, NumPy and Arrow to columns of a field's type, or refuses them."""

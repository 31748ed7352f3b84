"""Values of Python, NumPy and Arrow become columns of exactly a field's type, or are refused."""

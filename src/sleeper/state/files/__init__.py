"""Which files a table has, in Arrow columns, and which partition references which."""

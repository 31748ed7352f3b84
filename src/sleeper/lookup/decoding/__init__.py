"""The values of flat columns, from the bytes of their pages."""

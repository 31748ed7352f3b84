"""Commands that read: rows, exports, reports."""

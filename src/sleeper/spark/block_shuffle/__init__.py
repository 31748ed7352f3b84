"""Rows through Spark as blocks: sorted and cut where they are read, put together where written."""

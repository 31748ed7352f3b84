"""The client of the REST server: an instance and its tables, as `sleeper.connect` returns them.

    instance = sleeper.connect("https://host:8750", token="...")
    instance.table("flights").query(key="N14228").to_pandas()

`RemoteTable` checks arguments by the same functions as `Table`, asks the server, and returns the
same classes. Rows come as an Arrow stream. Errors are of the class that the server names.
"""

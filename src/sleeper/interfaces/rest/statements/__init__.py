"""Runs what callers wrote in SQL in processes of their own, which have a limit of memory.

A function such as `repeat` takes as much memory as it is told to, and nothing in a process can stop
it. So statements, and queries with a condition, run in processes that may use only so much memory.
They are killed when the time of the request is over, when its client leaves, or when the server
ends.

    answered.py    what such a process does: a question about rows, and its answer
    process.py     the process: its limits, and its loop
    worker.py      such a process, as the server handles it
    processes.py   the processes of a server: how many there are, who waits for one
    frames.py      what goes through the pipes between them
"""

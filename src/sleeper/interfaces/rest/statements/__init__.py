"""Runs what callers wrote in SQL in processes of their own, which have a limit of memory.

A function such as `repeat` takes as much memory as its arguments say, and nothing in a
process can stop it. So statements, and queries with a condition, run in processes that may use only
so much memory. They are killed when the time of the request is over, when its client leaves, or
when the server ends.

    questions.py         a question about rows, and its answer
    upload_ingest.py     rows that are uploaded
    process.py           the process: its limits, its loop, and the frames of the pipes to it
    process_handle.py    a process, as the server sees it
    process_pool.py      all processes of a server: how many there are, and who waits for one
"""

"""A library whose threads do not survive a fork is refused in the child of a process that used it."""

from __future__ import annotations

import os

import pytest

from sleeper.errors import BadRequest
from sleeper.fork_guard import ForkGuard


def in_a_fork(check) -> str:
    """Call in a child, and return the message of its error; empty without one."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            check()
        except BadRequest as error:
            os.write(write_end, str(error).encode())
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return said


def guard() -> ForkGuard:
    return ForkGuard("zorblib", use="counted stars", instead="count stars")


def test_a_process_may_use_the_library_many_times():
    """It is recorded once."""
    ours = guard()

    for _ in range(3):
        ours.check()


def test_a_child_of_a_process_that_used_it_gets_an_error():
    """The message says what the parent did, and what to do instead; each call is refused."""
    ours = guard()
    ours.check()

    def twice() -> None:
        with pytest.raises(BadRequest):
            ours.check()
        ours.check()

    said = in_a_fork(twice)

    assert said == (
        "this process was forked from one that counted stars, and zorblib does not survive a fork: "
        'start processes by spawn or forkserver (multiprocessing.get_context("spawn")), or count '
        "stars in the children only"
    )


def test_a_child_may_use_it_where_the_parent_did_not():
    """So may the parent afterwards."""
    ours = guard()

    assert in_a_fork(lambda: (ours.check(), ours.check())) == ""
    ours.check()


def test_another_library_is_another_record():
    """A parent that used one forks children that use the other."""
    used, unused = guard(), guard()
    used.check()

    assert in_a_fork(unused.check) == ""

"""The pause of Python's garbage collector while very many objects are made."""

from __future__ import annotations

import gc
import os
from contextlib import ExitStack, contextmanager
from threading import Event, Thread

import pytest

from sleeper.model.collector_pause import making_many_objects


@pytest.fixture(autouse=True)
def collector():
    """It is on before each test, and afterwards; nothing is frozen, as what lists the tests does."""
    gc.unfreeze()
    gc.enable()
    yield
    gc.enable()
    gc.freeze()


def test_the_collector_is_off_in_the_block_alone():
    """And on again afterwards, whatever ends the block."""
    with pytest.raises(ValueError, match="stop"), making_many_objects():
        assert not gc.isenabled()
        raise ValueError("stop")

    assert gc.isenabled()


def test_blocks_may_be_nested():
    """The outermost one ends the pause."""
    with making_many_objects():
        with making_many_objects():
            pass
        assert not gc.isenabled()

    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off():
    """Given a program that has switched it off."""
    gc.disable()

    with making_many_objects():
        pass

    assert not gc.isenabled()


@contextmanager
def a_pause_of_another_thread():
    """Another thread is in a block; it leaves it at the end."""
    begun, end = Event(), Event()

    def pause():
        with making_many_objects():
            begun.set()
            end.wait()

    thread = Thread(target=pause)
    thread.start()
    begun.wait()
    yield
    end.set()
    thread.join()


def test_the_last_of_several_threads_ends_the_pause():
    """Given two blocks that overlap."""
    with ExitStack() as other:
        with making_many_objects():
            other.enter_context(a_pause_of_another_thread())
        assert not gc.isenabled()

    assert gc.isenabled()


def test_a_process_forked_meanwhile_has_its_collector():
    """Given a fork while another thread makes objects: that thread is not in the new process."""
    with a_pause_of_another_thread():
        child = os.fork()
        if not child:
            with making_many_objects():
                is_off = not gc.isenabled()
            os._exit(0 if is_off and gc.isenabled() else 1)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_very_many_objects_are_old_afterwards():
    """So that the collector does not look at them three times before it leaves them alone."""
    with making_many_objects():
        made = [[] for _ in range(50_000)]

    assert gc.get_count()[0] < 1_000
    assert gc.get_freeze_count() == 0
    assert any(each is made[0] for each in gc.get_objects(generation=2))


def test_few_objects_stay_young():
    """Given small entries again and again: their garbage is found as early as ever."""
    gc.collect()

    with making_many_objects():
        made = [[] for _ in range(1_000)]

    assert not any(each is made[0] for each in gc.get_objects(generation=2))


def test_what_a_program_has_frozen_stays_frozen():
    """A server may freeze its objects before it forks."""
    gc.freeze()
    frozen = gc.get_freeze_count()

    with making_many_objects():
        made = [[] for _ in range(50_000)]

    assert gc.get_freeze_count() == frozen
    assert len(made) == 50_000


@making_many_objects()
def decorated():
    return gc.isenabled()


def test_a_function_may_be_decorated():
    """Each call is a block of its own."""
    assert [decorated(), decorated()] == [False, False]
    assert gc.isenabled()

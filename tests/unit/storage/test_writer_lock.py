"""The lock that lets writers of one folder take turns: waited for, for a while, and given back."""

from __future__ import annotations

import os
from contextlib import ExitStack
from functools import partial

import pytest

from sleeper.storage.local import unfinished as module
from sleeper.storage.local.unfinished import writer_lock


@pytest.fixture
def root(tmp_path):
    return str(tmp_path)


def test_a_writer_waits_until_the_other_has_ended_and_is_called_meanwhile(root):
    """It is told again and again that others have the lock, and gets it when they end."""
    other = ExitStack()
    other.enter_context(writer_lock(root, "log", pytest.fail))
    steps = []

    def meanwhile():
        steps.append("waits")
        if len(steps) == 2:
            other.close()

    with writer_lock(root, "log", meanwhile):
        steps.append("has it")

    assert steps[:2] == ["waits", "waits"]
    assert steps[-1] == "has it"


def test_a_lock_that_nobody_has_is_taken_at_once(root):
    """Nothing is called meanwhile, and no other lock is in the way."""
    waited = []
    meanwhile = partial(waited.append, "waits")

    with writer_lock(root, "log", meanwhile), writer_lock(root, "another", meanwhile):
        assert waited == []


def test_a_writer_that_hangs_does_not_hold_up_others_for_ever(root, monkeypatch, caplog):
    """Who has waited for long goes ahead without the lock, says so, and takes it from nobody."""
    monkeypatch.setattr(module, "_LOOKS", 3)
    caplog.set_level("INFO")
    waited = []
    with writer_lock(root, "log", pytest.fail):
        with writer_lock(root, "log", lambda: waited.append(1)):
            assert len(waited) == 3
            assert "going ahead without it" in caplog.text
        with writer_lock(root, "log", lambda: waited.append(1)):
            assert len(waited) == 6


def test_a_process_that_was_forked_meanwhile_does_not_keep_the_lock(root):
    """The child has the file open too, until it ends."""
    end, told = os.pipe()
    with writer_lock(root, "log", pytest.fail):
        child = os.fork()
        if not child:
            os.close(told)
            os.read(end, 1)
            os._exit(0)
    waited = []
    with writer_lock(root, "log", lambda: waited.append(1)):
        assert waited == []
    os.close(told)
    os.close(end)
    os.waitpid(child, 0)


def test_no_file_of_a_lock_is_made_through_a_link(tmp_path):
    """Given a link in the place of the hidden folder, then its target stays as it was.

    Writers do not take turns there; the log does not depend on it.
    """
    target, root = tmp_path / "of somebody else", tmp_path / "instance"
    target.mkdir()
    root.mkdir()
    (root / ".tmp-writes").symlink_to(target)

    with writer_lock(str(root), "log", pytest.fail), writer_lock(str(root), "log", pytest.fail):
        assert list(target.iterdir()) == []

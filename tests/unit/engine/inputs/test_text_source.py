"""Files of text, and the threads of Arrow that read ahead in them."""

from __future__ import annotations

import io
import sys
import threading
import weakref
from contextlib import contextmanager

import pyarrow as pa
import pytest

from sleeper.engine.inputs.text_files import TextFiles
from sleeper.engine.inputs.text_values import TextSource
from sleeper.errors import InputRefused
from tests.patience import PATIENCE_S

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])


class File(io.BytesIO):
    """A file to which weak references can be made."""


class OneFile:
    """A store with one file, that knows whether anything still has the file."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._opened: list[weakref.ref[File]] = []

    def find(self, url: str) -> list[str]:
        return [url]

    @contextmanager
    def open(self, url: str):
        file = File(self._body)
        self._opened.append(weakref.ref(file))
        yield file

    def held(self) -> int:
        return sum(file() is not None for file in self._opened)


def refusal(files: TextFiles) -> str:
    """Return why rows are refused. The error itself, which holds frames, is gone then."""
    try:
        list(files.batches())
    except InputRefused as refused:
        return str(refused)
    return ""


@pytest.fixture
def _others_wait():
    """Threads get their turn only when this one waits."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(60)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_others_wait")
class TestAFileOfText:
    """An ingest that is refused ends with exit code 1, and not by SIGABRT.

    A thread of Arrow that lets go of a Python file while Python ends aborts the process.
    """

    @pytest.mark.parametrize(
        ("name", "body"),
        [
            ("a.csv", b"id\n1\nx\n"),
            ("a.csv", b"id\n1\n2,3\n"),
            ("a.jsonl", b'{"id": 1}\n{"id": "x"}\n'),
        ],
    )
    def test_is_let_go_by_all_threads_when_its_rows_are_refused(self, name, body):
        """Twenty times: how far a thread is ahead differs."""
        for _ in range(20):
            store = OneFile(body)
            files = TextFiles((f"s3://bucket/{name}",), SCHEMA, store)

            assert "Nothing was ingested" in refusal(files)
            assert store.held() == 0

    def test_is_let_go_by_all_threads_when_only_its_first_rows_are_read(self):
        """As by `estimate-splits`, which samples."""
        store = OneFile(b"id\n" + b"1\n" * 100_000)
        files = TextFiles(("s3://bucket/a.csv",), SCHEMA, store)

        assert sum(batch.num_rows for batch in files.batches(rows_per_file_max=5)) == 5

        assert store.held() == 0


@pytest.mark.parametrize("kept", ["the file", "what it read"])
def test_a_source_waits_for_the_thread_that_has_it(kept):
    """However long the thread takes."""
    source = TextSource(io.BytesIO(b"id\n"))
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def read(lent: list) -> None:
        if kept == "what it read":
            lent.append(lent.pop().read())
        begun.set()
        go_on.wait()
        assert bytes(lent.pop().read() if kept == "the file" else lent.pop()) == b"id\n"

    def wait() -> None:
        source.wait_for_readers()
        done.set()

    threading.Thread(target=read, args=([source.lend()],)).start()
    begun.wait()
    threading.Thread(target=wait).start()

    assert not done.wait(0.05)
    go_on.set()
    assert done.wait(PATIENCE_S)

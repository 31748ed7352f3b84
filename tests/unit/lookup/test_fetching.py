"""How look-ups get the bytes of remote files: in few round trips, shared between threads."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.engine.writing.data_file import SealedOutput
from sleeper.errors import DataDamaged, StorageFailed
from sleeper.lookup.parquet import file_end
from sleeper.lookup.parquet_index import IndexCache, SingleFlight
from sleeper.lookup.reader import LookupReader
from tests.patience import PATIENCE_S
from tests.unit.lookup.conftest import CountedFolder

SCHEMA = pa.schema([("key", pa.string()), ("text", pa.string()), ("n", pa.int64())])
ROWS = 40_000
GROUP_ROWS = 10_000


def rows(numbers, width=40):
    """Rows with these numbers; their texts are compressed to half of this width."""
    texts = [random.Random(n).randbytes(width // 2).hex() for n in numbers]
    return pa.table({"key": [f"{n:08d}" for n in numbers], "text": texts, "n": numbers}, SCHEMA)


def write(folder, name, table, group_rows=GROUP_ROWS):
    """Write a file as the product does: pages of 1,000 rows, filters, a seal."""
    with (folder.path / name).open("wb") as raw, SealedOutput(raw) as output:
        writer = pq.ParquetWriter(
            output,
            table.schema,
            write_page_index=True,
            write_page_checksum=True,
            max_rows_per_page=1_000,
            use_dictionary=False,
            bloom_filter_options={"key": {"ndv": GROUP_ROWS, "fpp": 0.01}},
        )
        writer.write_table(table, row_group_size=group_rows)
        output.hold()
        writer.close()
    return name


def keys(*numbers, suffix=""):
    return pa.RecordBatch.from_arrays([pa.array([f"{n:08d}{suffix}" for n in numbers])], ["key"])


@pytest.fixture
def opened(remote):
    """A reader of one remote file, and the file's name; sizes of files are known."""
    name = write(remote, "one.parquet", rows(range(ROWS)))
    reader = LookupReader(remote)
    reader.note_sizes({name: remote.size(name)})
    return reader, name


class TestRoundTrips:
    """How many calls follow each other, and what they read."""

    def test_a_warm_hit_is_one_round_of_its_pages(self, remote, opened):
        """The key's page and the pages of other columns with the same rows are read at once."""
        reader, name = opened
        for number in range(0, ROWS, GROUP_ROWS):
            reader.look_up([name], keys(number), SCHEMA)
        remote.reads.clear()

        (found,) = reader.look_up([name], keys(23_456), SCHEMA)

        assert found.to_pylist() == rows([23_456]).to_pylist()
        assert [len(ranges) for ranges in remote.reads] == [3]
        assert remote.bytes_read() < 60_000

    def test_the_first_hit_in_a_file_is_two_rounds(self, remote, opened):
        """First the file's end, with all page indexes; then the filter, with the pages."""
        reader, name = opened

        (found,) = reader.look_up([name], keys(23_456), SCHEMA)

        assert found.num_rows == 1
        assert len(remote.reads) == 2
        assert len(remote.reads[0]) == 1

    def test_a_small_file_is_read_in_one_round(self, remote):
        """Its pages and filters are read with its end."""
        name = write(remote, "small.parquet", rows(range(500)))
        reader = LookupReader(remote)

        (found,) = reader.look_up([name], keys(123), SCHEMA)

        assert found.to_pylist() == rows([123]).to_pylist()
        assert len(remote.reads) == 1

    def test_a_file_of_unknown_size_takes_no_more(self, remote):
        """As one in an old state: its end is read together with its size."""
        name = write(remote, "one.parquet", rows(range(ROWS)))
        reader = LookupReader(remote)

        (found,) = reader.look_up([name], keys(23_456), SCHEMA)

        assert found.to_pylist() == rows([23_456]).to_pylist()
        assert len(remote.reads) == 2

    def test_filters_that_were_read_with_the_end_are_kept(self, remote):
        """Of small files, also if the first key is not between their bounds."""
        names = [write(remote, f"{n}.parquet", rows(range(n, 2_000, 20))) for n in range(20)]
        reader = LookupReader(remote)
        reader.look_up(names, keys(0), SCHEMA)
        remote.reads.clear()

        found = reader.look_up(names, keys(1_017), SCHEMA)

        assert [table.num_rows for table in found] == [int(n == 17) for n in range(20)]
        assert len(remote.reads) <= 3  # one in a hundred passes a filter

    def test_an_absent_key_is_known_without_a_read(self, remote, opened):
        """Once its row group's filter is in memory."""
        reader, name = opened
        reader.look_up([name], keys(5), SCHEMA)
        remote.reads.clear()

        found = [reader.look_up([name], keys(n, suffix="x"), SCHEMA)[0] for n in range(20)]

        assert sum(table.num_rows for table in found) == 0
        assert len(remote.reads) <= 2  # one in a hundred passes the filter

    def test_filters_of_a_file_take_few_requests(self, remote, monkeypatch):
        """A file that is asked everywhere has its filters read in steps that double."""
        monkeypatch.setattr(file_end, "REMOTE_READ_BYTES", 8)
        name = write(remote, "one.parquet", rows(range(32_000), 16), 1_000)
        reader = LookupReader(remote)
        reader.note_sizes({name: remote.size(name)})
        reader.look_up([name], keys(5), SCHEMA)
        remote.reads.clear()

        for number in range(0, 32_000, 1_000):
            reader.look_up([name], keys(number + 7, suffix="x"), SCHEMA)

        assert 1 <= len(remote.reads) <= 6
        assert remote.bytes_read() < 32 * 4_000

    def test_where_pages_are_large_the_key_is_found_first(self, remote):
        """No megabytes are read for a key that a page may turn out not to have."""
        table = rows(range(2_000), 4_000)
        name = write(remote, "wide.parquet", table)
        reader = LookupReader(remote)
        reader.look_up([name], keys(5), SCHEMA, ["n"])
        remote.reads.clear()

        (found,) = reader.look_up([name], keys(77), SCHEMA)

        assert found.to_pylist() == table.slice(77, 1).to_pylist()
        assert len(remote.reads) == 2

    def test_of_many_files_only_filters_are_read_first(self, remote):
        """Twenty files between whose bounds a key is: their pages would be read in vain."""
        names = [
            write(remote, f"{n}.parquet", rows(range(n, ROWS // 2, 20), 800)) for n in range(20)
        ]
        reader = LookupReader(remote)
        sizes = [remote.size(name) for name in names]
        reader.note_sizes(dict(zip(names, sizes, strict=True)))

        found = reader.look_up(names, keys(10_007), SCHEMA)

        assert [table.num_rows for table in found] == [int(n == 7) for n in range(20)]
        assert len(remote.reads) <= 20 + 3  # filters were read with the ends of the files
        pages_bytes = min(sizes) - (128 << 10)
        assert remote.bytes_read() < 20 * (128 << 10) + 3 * pages_bytes


class TestThreads:
    """Threads that look up at the same time."""

    def test_no_look_up_waits_for_another(self, remote):
        """All reads of 32 threads are under way at the same time: none holds a lock meanwhile."""
        name = write(remote, "one.parquet", rows(range(ROWS)))
        together = threading.Barrier(32, timeout=PATIENCE_S)

        class Waiting(CountedFolder):
            waits = False

            def read_ranges(self, key, ranges):
                if self.waits:
                    together.wait()
                return super().read_ranges(key, ranges)

        folder = Waiting(remote.path, is_remote=True)
        reader = LookupReader(folder)
        for number in range(0, ROWS, GROUP_ROWS):
            reader.look_up([name], keys(number), SCHEMA)
        folder.waits = True

        with ThreadPoolExecutor(32) as threads:
            found = [
                *threads.map(
                    lambda n: reader.look_up([name], keys(n), SCHEMA)[0], range(500, 32_500, 1_000)
                )
            ]

        assert [table["n"].to_pylist() for table in found] == [
            [n] for n in range(500, 32_500, 1_000)
        ]

    def test_threads_that_open_a_file_share_its_requests(self, remote):
        """However many ask for a file first, its end is read once."""
        name = write(remote, "one.parquet", rows(range(ROWS)))
        started = threading.Barrier(8, timeout=PATIENCE_S)

        class Slow(CountedFolder):
            def read_ranges(self, key, ranges):
                if not self.reads:
                    threading.Event().wait(0.3)
                return super().read_ranges(key, ranges)

        folder = Slow(remote.path, is_remote=True)
        reader = LookupReader(folder)

        def look_up(number):
            started.wait()
            return reader.look_up([name], keys(number), SCHEMA)[0].num_rows

        with ThreadPoolExecutor(8) as threads:
            found = [*threads.map(look_up, range(8))]

        size = folder.size(name)
        ends = [ranges for ranges in folder.reads if sum(ranges[-1]) == size]
        assert found == [1] * 8
        assert len(ends) == 1

    def test_what_one_raises_is_raised_in_all(self, remote):
        """A missing file is missing for everybody, and asked for again next time."""
        reader = LookupReader(remote)
        write(remote, "one.parquet", rows(range(10)))
        reader.note_sizes({"one.parquet": 10})

        with pytest.raises(DataDamaged, match=r"one\.parquet"):
            reader.look_up(["one.parquet"], keys(1), SCHEMA)

        assert reader.look_up(["one.parquet"], keys(1), SCHEMA)[0].num_rows == 1


class TestSingleFlight:
    """One call for all threads that need it at the same time."""

    @staticmethod
    def of_two_threads(call):
        """Let a second thread ask while the first one's call runs; return the results of both."""
        shared, begun, asked = SingleFlight(), threading.Event(), threading.Event()
        calls = []

        def first():
            calls.append(1)
            begun.set()
            asked.wait(PATIENCE_S)
            threading.Event().wait(0.2)  # until the other thread waits
            return call()

        def second():
            calls.append(2)
            return "own"

        def ask():
            begun.wait(PATIENCE_S)
            asked.set()
            return shared.run("key", second)

        with ThreadPoolExecutor(2) as threads:
            made, waited = threads.submit(shared.run, "key", first), threads.submit(ask)
            return made, waited, calls, shared

    def test_a_result_is_shared(self):
        """The second thread makes no call; a later one does."""
        made, waited, calls, shared = self.of_two_threads(lambda: "shared")

        assert (made.result(), waited.result()) == ("shared", "shared")
        assert calls == [1]
        assert shared.run("key", lambda: "later") == "later"

    def test_an_error_is_shared(self):
        """Whoever waits for a call gets its error."""

        def fail():
            raise StorageFailed("no answer")

        made, waited, calls, _ = self.of_two_threads(fail)

        assert isinstance(made.exception(), StorageFailed)
        assert isinstance(waited.exception(), StorageFailed)
        assert calls == [1]

    def test_an_interrupt_is_not_shared(self):
        """Ctrl-C ends the thread that it reached; the other one makes the call itself."""

        class CtrlC(BaseException):
            """Like KeyboardInterrupt, which would end the tests."""

        def interrupt():
            raise CtrlC

        made, waited, calls, _ = self.of_two_threads(interrupt)

        assert isinstance(made.exception(), CtrlC)
        assert waited.exception() is None
        assert waited.result() == "own"
        assert calls == [1, 2]


class TestIndexCache:
    """What is dropped first."""

    @staticmethod
    def index(name, size_bytes=10):
        return SimpleNamespace(filename=name, size_bytes=size_bytes)

    def test_files_of_scans_are_dropped_before_files_of_look_ups(self):
        """A scan of any number of files leaves the indexes of look-ups in memory."""
        cache = IndexCache(30)
        cache.put(self.index("looked up"))

        for number in range(9):
            cache.put(self.index(f"scanned {number}"), scan=True)

        assert cache.get("looked up") is not None
        assert cache.get("scanned 8", scan=True) is not None
        assert cache.get("scanned 1", scan=True) is None
        assert cache.size_bytes == 30

    def test_a_scanned_file_that_is_looked_up_is_kept_like_others(self):
        """From then on the next scan does not drop it."""
        cache = IndexCache(30)
        cache.put(self.index("both"), scan=True)
        assert cache.get("both") is not None

        for number in range(9):
            cache.put(self.index(f"scanned {number}"), scan=True)

        assert cache.get("both") is not None

    def test_a_scan_does_not_count_a_file_twice(self):
        """Whoever measures it again."""
        cache = IndexCache(100)
        index = self.index("a")
        cache.put(index)
        index.size_bytes = 25
        cache.put(index, scan=True)
        cache.put(self.index("b"), scan=True)
        cache.put(self.index("b", 40))

        assert cache.size_bytes == 65
        cache.drop("a")
        cache.drop("b")
        assert cache.size_bytes == 0

"""What every store of objects must do, whatever lies beneath it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sleeper.errors import BadRequest, ObjectNotFound, ObjectTooShort, StorageFailed

if TYPE_CHECKING:
    from sleeper.ports.objects import Objects

ODD_KEYS = [
    "a b/c d",
    "é/Ünïcödé",
    "e\u0301",  # the same letter as é, in two characters: another key
    "a+b=c%20d&e#f?g",
    "col=1/part-0.parquet",
    "雪/🏔",
    "back\\slash",
    "quote'\"`$(x);",
    "-dash",
    ".hidden",
    "..dots",
    "dots..",
    "new\nline",
    "n" * 200,
]
FORBIDDEN_KEYS = [
    "",
    "/etc/passwd",
    "..",
    "../up",
    "a/../b",
    "a/./b",
    "a//b",
    "a/",
    "a/..",
    ".tmp-1",
    "a/.tmp-1/b",
    "nul\0",
    "half a character \ud800",
]
EXAMPLE_NUMBERS = count()


def keys_of(objects: Objects, prefix: str = "", after: str = "") -> list[str]:
    """Return just the keys of a listing."""
    return [info.key for info in objects.listing(prefix, after)]


class ObjectsContract:
    """Subclass it and supply `objects`, an empty store."""

    def test_a_key_that_is_free_can_be_created(self, objects):
        """Creating an object says True, and the body can be read back."""
        created = objects.create("a/b", b"body")

        assert created
        assert objects.read("a/b") == b"body"
        assert objects.size("a/b") == 4

    def test_a_key_that_is_taken_keeps_its_body(self, objects):
        """Creating says False where there is an object, even one with the same body."""
        objects.create("a/b", b"first")

        again = [objects.create("a/b", b"second"), objects.create("a/b", b"first")]

        assert again == [False, False]
        assert objects.read("a/b") == b"first"

    def test_a_deleted_key_is_free_again(self, objects):
        """Nothing of a deleted object is in the way of a new one."""
        objects.create("a/b/c", b"first")
        objects.delete(["a/b/c"])

        created = objects.create("a/b/c", b"second")

        assert created
        assert objects.read("a/b/c") == b"second"

    def test_of_many_creators_exactly_one_wins(self, objects):
        """Sixteen threads race for each of many keys: one is told True, and its body stays."""
        keys = [f"race/{n}" for n in range(25)]

        def try_all(writer: int) -> list[bool]:
            return [objects.create(key, f"writer {writer}".encode()) for key in keys]

        with ThreadPoolExecutor(16) as threads:
            answers = list(threads.map(try_all, range(16)))

        winners = [[w for w in range(16) if answers[w][k]] for k in range(len(keys))]
        assert [len(each) for each in winners] == [1] * len(keys)
        assert [objects.read(key) for key in keys] == [
            f"writer {winner}".encode() for (winner,) in winners
        ]

    def test_put_replaces_what_was_there(self, objects):
        """The last put is what is read; it needs no object to be there before."""
        objects.put("a/b", b"first, and longer")
        objects.put("a/b", b"second")

        assert objects.read("a/b") == b"second"
        assert objects.size("a/b") == 6

    def test_a_reader_sees_the_old_body_or_the_new_one(self, objects):
        """Whoever reads while others put finds one whole body, never a mixture or a piece."""
        bodies = [bytes([n]) * (1_000 * (n + 1)) for n in range(4)]
        objects.put("a", bodies[0])

        def put(body: bytes) -> None:
            for _ in range(15):
                objects.put("a", body)

        with ThreadPoolExecutor(4) as threads:
            writers = [threads.submit(put, body) for body in bodies]
            seen = {objects.read("a")}
            while not all(writer.done() for writer in writers):
                seen.add(objects.read("a"))
            for writer in writers:
                writer.result()

        assert seen <= set(bodies)

    def test_what_is_not_there_is_told_kindly(self, objects):
        """Reading an absent object gives None; parts or size of it are an error that names it."""
        assert objects.read("no/such") is None
        with pytest.raises(ObjectNotFound, match="no/such"):
            objects.size("no/such")
        with pytest.raises(ObjectNotFound, match="no/such"):
            objects.read_ranges("no/such", [(0, 1)])
        with pytest.raises(ObjectNotFound, match="no/such"):
            objects.read_end("no/such", 1)

    def test_a_folder_of_objects_is_not_an_object(self, objects):
        """Where `a/b` is an object, `a` is none, nor is `a/b/c`."""
        objects.put("a/b", b"body")

        assert objects.read("a") is None
        assert objects.read("a/b/c") is None
        for key in ("a", "a/b/c"):
            with pytest.raises(ObjectNotFound):
                objects.size(key)
            with pytest.raises(ObjectNotFound):
                objects.read_ranges(key, [(0, 1)])
        objects.delete(["a", "a/b/c"])
        assert objects.read("a/b") == b"body"

    def test_an_object_may_be_empty(self, objects):
        """No bytes are a body too."""
        created = objects.create("empty", b"")

        assert created
        assert objects.read("empty") == b""
        assert objects.read_ranges("empty", [(0, 0)]) == [b""]

    def test_ranges_come_back_in_the_order_asked_for(self, objects):
        """Ranges may overlap, repeat, be empty, and touch the last byte."""
        objects.put("a", bytes(range(100)))

        parts = objects.read_ranges("a", [(90, 10), (0, 3), (1, 3), (50, 0), (100, 0)])

        assert parts == [bytes(range(90, 100)), b"\0\1\2", b"\1\2\3", b"", b""]

    @pytest.mark.parametrize("asked", [(95, 6), (100, 1), (1_000, 5)])
    def test_a_range_past_the_end_is_refused(self, objects, asked):
        """An object shorter than its reader believes is damage: it must not go unnoticed."""
        objects.put("some/file", bytes(100))

        with pytest.raises(ObjectTooShort, match="some/file"):
            objects.read_ranges("some/file", [(0, 10), asked])

    @pytest.mark.parametrize(
        ("length", "size"), [(1, 100), (99, 100), (100, 100), (500, 100), (9, 0)]
    )
    def test_the_end_comes_with_the_length_of_the_object(self, objects, length, size):
        """Whoever does not know the length needs no second request; there may be fewer bytes."""
        body = bytes(range(size))
        objects.put("a", body)

        end, found = objects.read_end("a", length)

        assert (end, found) == (body[max(0, size - length) :], size)

    @pytest.mark.parametrize("asked", [(-1, 5), (5, -1)])
    def test_a_negative_range_is_refused(self, objects, asked):
        """It would mean something else to each kind of storage."""
        objects.put("a", bytes(100))

        with pytest.raises(BadRequest, match="negative"):
            objects.read_ranges("a", [asked])

    def test_odd_keys_are_as_good_as_any(self, objects):
        """Spaces, signs, other scripts and line ends survive create, read, listing and delete."""
        for key in ODD_KEYS:
            assert objects.create(key, key.encode())

        assert [objects.read(key) for key in ODD_KEYS] == [key.encode() for key in ODD_KEYS]
        assert keys_of(objects) == sorted(ODD_KEYS, key=str.encode)
        objects.delete(ODD_KEYS)
        assert keys_of(objects) == []

    @pytest.mark.parametrize("key", FORBIDDEN_KEYS, ids=ascii)
    def test_a_key_that_would_leave_the_store_is_refused(self, objects, key):
        """Every method refuses it, and the message shows the key."""
        calls = [
            lambda: objects.create(key, b""),
            lambda: objects.put(key, b""),
            lambda: objects.read(key),
            lambda: objects.read_ranges(key, [(0, 1)]),
            lambda: objects.size(key),
            lambda: objects.read_end(key, 1),
            lambda: objects.open_output(key),
            lambda: objects.url(key),
            lambda: objects.delete([key]),
        ]

        for call in calls:
            with pytest.raises(BadRequest, match="cannot be an object's key"):
                call()

    @pytest.mark.parametrize("prefix", ["../up", "/etc/", "a//b", "a/../../b"])
    def test_a_prefix_that_would_leave_the_store_is_refused(self, objects, prefix):
        """Neither a listing nor a view gets out of the store."""
        with pytest.raises(BadRequest):
            objects.listing(prefix)
        with pytest.raises(BadRequest):
            objects.under(prefix)

    def test_deleting_what_is_not_there_is_no_error(self, objects):
        """What was asked for is so already; the others of the same call still go."""
        objects.put("a", b"")
        objects.put("b", b"")

        objects.delete(["a", "no/such", "b", "a"])

        assert keys_of(objects) == []

    def test_a_listing_describes_each_object(self, objects):
        """Key, length, and an aware time in UTC."""
        objects.put("a/b", b"four")

        (info,) = objects.listing()

        assert (info.key, info.size_bytes) == ("a/b", 4)
        assert info.modified.tzinfo is UTC
        assert info.modified > datetime(2020, 1, 1, tzinfo=UTC)

    def test_a_listing_is_in_the_order_of_whole_keys(self, objects):
        """By UTF-8 bytes, as S3 does: `a-b` is before `a/b`, which is before `a0`."""
        for key in ("a0", "a/z", "a-b", "a/b/c", "a/b.c", "b", "ab/c", "\uffff", "🏔"):
            objects.put(key, b"")

        listed = keys_of(objects)

        assert listed == ["a-b", "a/b.c", "a/b/c", "a/z", "a0", "ab/c", "b", "\uffff", "🏔"]

    def test_a_prefix_may_end_anywhere(self, objects):
        """It is the start of a string, not the name of a folder."""
        for key in ("log/1", "log/10", "log/2", "logs/1", "lo", "x/log/1"):
            objects.put(key, b"")

        assert keys_of(objects, "log") == ["log/1", "log/10", "log/2", "logs/1"]
        assert keys_of(objects, "log/") == ["log/1", "log/10", "log/2"]
        assert keys_of(objects, "log/1") == ["log/1", "log/10"]
        assert keys_of(objects, "log/1/") == []
        assert keys_of(objects, "none/") == []

    def test_a_listing_goes_on_after_a_key(self, objects):
        """Page by page, each from the last key of the one before, nothing is lost or doubled."""
        keys = sorted(f"p/{n // 10}/{n % 10}" for n in range(30))
        for key in keys:
            objects.put(key, b"")

        pages, after = [], ""
        while page := keys_of(objects, "p/", after)[:7]:
            pages.append(page)
            after = page[-1]

        assert [key for page in pages for key in page] == keys
        assert keys_of(objects, "p/1/", "p/0/5") == keys[10:20]
        assert keys_of(objects, "p/1/", "p/2") == []

    @settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        keys=st.sets(st.text("a-/.0é", min_size=1, max_size=6), max_size=8),
        prefix=st.text("a-/0", max_size=3),
        after=st.text("a-/0", max_size=4),
    )
    def test_a_listing_is_filter_and_sort(self, objects, keys, prefix, after):
        """Whatever the keys: those with the prefix, past the key, by UTF-8 bytes."""
        view = objects.under(f"example-{next(EXAMPLE_NUMBERS)}")
        for key in keys:
            try:
                view.create(key, b"")
            except StorageFailed:
                continue  # a folder cannot hold both `a` and `a/b`
            except BadRequest:
                continue  # not a key anywhere
        present = [key for key in keys if _is_there(view, key)]

        try:
            listed = keys_of(view, prefix, after)
        except BadRequest:
            return

        expected = [key for key in present if key.startswith(prefix) and key > after]
        assert listed == sorted(expected, key=str.encode)

    def test_storage_tells_its_time(self, objects):
        """It is the time that objects are stamped with, to the second; it does not go back."""
        before = objects.storage_time()
        objects.put("now", b"")
        after = objects.storage_time()

        (stored,) = objects.listing("now")
        assert before.tzinfo is not None
        assert before - timedelta(seconds=1) <= stored.modified <= after + timedelta(seconds=1)
        assert before <= after

    def test_storage_tells_when_an_object_was_stored(self, objects):
        """To the second, and never before it was; of an object that is not there, nothing."""
        before = objects.storage_time()
        objects.create("log/1", b"")
        after = objects.storage_time()

        stored = objects.under("log").stored_at("1")
        assert before - timedelta(seconds=1) <= stored <= after + timedelta(seconds=1)
        assert stored.tzinfo is not None
        assert objects.stored_at("log/2") is None
        assert objects.stored_at("log") is None

    def test_work_beside_others_is_done_once_for_all_who_ask(self, objects):
        """Given a read that is begun, then each who asks has its result."""
        objects.put("a", b"1")
        calls = []

        answer = objects.beside(lambda: calls.append(1) or objects.read("a"))

        assert [answer(), answer()] == [b"1", b"1"]
        assert calls == [1]

    def test_work_beside_others_fails_where_it_is_asked_for(self, objects):
        """Given a read that fails, then each who asks gets its error, and nobody else."""
        answer = objects.beside(lambda: objects.size("missing"))

        for _ in range(2):
            with pytest.raises(ObjectNotFound):
                answer()

    def test_work_beside_others_may_wait_for_more_of_it(self, objects):
        """Given more work than there are threads, each of which waits, then all of it is done."""
        objects.put("a", b"1")

        def look(depth):
            if not depth:
                return 1 if objects.read("a") == b"1" else 0
            return sum(answer() for answer in [objects.beside(partial(look, 0))] * depth)

        answers = [objects.beside(partial(look, 2)) for _ in range(100)]

        assert sum(answer() for answer in answers) == 200

    def test_a_view_shows_the_same_objects_under_shorter_keys(self, objects):
        """What is written through a view is there for the whole, and the other way round."""
        table = objects.under("tables/t1")
        table.put("log/1", b"one")
        objects.put("tables/t1/log/2", b"two")
        objects.put("tables/t10/log/3", b"another table's")

        assert objects.read("tables/t1/log/1") == b"one"
        assert table.read("log/2") == b"two"
        assert keys_of(table) == ["log/1", "log/2"]
        assert keys_of(table, "log/", "log/1") == ["log/2"]
        assert keys_of(table.under("log/")) == ["1", "2"]
        assert table.under("log").create("1", b"") is False
        assert keys_of(objects.under("")) == keys_of(objects)
        table.delete(["log/1", "log/2"])
        assert keys_of(objects) == ["tables/t10/log/3"]

    def test_refusals_name_the_whole_key(self, objects):
        """Also those of a view: its user knows where it begins, the person reading does not."""
        with pytest.raises(ObjectNotFound, match="tables/t1/no/such"):
            objects.under("tables/t1").size("no/such")


def _is_there(objects: Objects, key: str) -> bool:
    try:
        return objects.read(key) is not None
    except BadRequest:
        return False

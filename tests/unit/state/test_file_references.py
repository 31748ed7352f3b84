"""The file index: every fact about it, and then any order of changes beside plain dictionaries."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule

from sleeper.model.files import FileReference
from sleeper.state.file_references import FileReferences, PartitionTotals
from sleeper.state.reference_rows import SCHEMA
from tests.soak import tries

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(hours=1)


def ref(filename: str, partition_id: str, row_count: int = 10, **more) -> FileReference:
    more = {"updated": NOON, **more}
    return FileReference(filename=filename, partition_id=partition_id, row_count=row_count, **more)


def index_of(*references: FileReference, unreferenced=(), at=NOON) -> FileReferences:
    return FileReferences.empty().changed(added=references, unreferenced=unreferenced, at=at)


def names(references) -> list[str]:
    return [each.filename for each in references]


class EagerIndex(FileReferences):
    """An index that folds after a handful of changes."""

    _fold_min = 5


@pytest.fixture(params=["in the overlay", "folded", "read back"])
def placed(request):
    """Put an index's content into its overlay, into its base, or through a Parquet file."""

    def place(index: FileReferences) -> FileReferences:
        if request.param == "in the overlay":
            return index
        if request.param == "folded":
            return index.folded()
        return through_parquet(index)

    return place


def through_parquet(index: FileReferences, **options) -> FileReferences:
    sink = pa.BufferOutputStream()
    pq.write_table(index.to_arrow(), sink, compression="zstd", **options)
    return FileReferences.from_arrow(pq.read_table(pa.BufferReader(sink.getvalue())))


class TestAnEmptyIndex:
    """A table without files."""

    def test_has_nothing(self, placed):
        """An empty index answers every question with nothing."""
        index = placed(FileReferences.empty())

        assert (index.reference_count, index.file_count, index.overlay_size) == (0, 0, 0)
        assert index.references_on("root") == index.references_to("a") == ()
        assert index.reference("a", "root") is None
        assert not index.is_tracked("a")
        assert list(index.unreferenced()) == []
        assert index.partition_ids() == frozenset()
        assert index.totals() == {}


class TestLookingUp:
    """References by partition, by file, and one by one."""

    def test_a_partition_lists_its_references_by_filename(self, placed):
        """The references on a partition come in the order of their filenames."""
        index = placed(index_of(ref("c", "L"), ref("a", "L"), ref("b", "R")))

        assert index.references_on("L") == (ref("a", "L"), ref("c", "L"))
        assert index.references_on("nowhere") == ()
        assert index.filenames_on("L") == ["a", "c"]
        assert index.filenames_on("nowhere") == []

    def test_a_file_lists_its_references_by_partition(self, placed):
        """The references to a shared file come in the order of their partitions."""
        index = placed(index_of(ref("a", "R"), ref("b", "L"), ref("a", "L")))

        assert index.references_to("a") == (ref("a", "L"), ref("a", "R"))

    def test_one_reference_keeps_every_field(self, placed):
        """A reference comes back with exactly the values that it went in with."""
        given = ref(
            "data/\N{SNOWMAN}.parquet",
            "L",
            2**40,
            row_count_estimated=True,
            whole_file=False,
            job_id="job",
            updated=NOON + timedelta(microseconds=1),
        )

        index = placed(index_of(given, at=given.updated))

        assert index.reference(given.filename, "L") == given
        assert index.reference(given.filename, "R") is None
        assert index.reference("other", "L") is None

    def test_times_keep_their_microseconds_and_their_zone(self, placed):
        """Times are aware, in UTC, and exact to the microsecond, before 1970 too."""
        old = datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)

        index = placed(index_of(ref("a", "L"), unreferenced=["b"], at=old))

        assert index.references_on("L")[0].updated == index.unreferenced_since("b") == old
        assert index.references_on("L")[0].updated.utcoffset() == timedelta(0)

    def test_counts_tell_references_from_files(self, placed):
        """A shared file is one file with several references; an unreferenced one has none."""
        index = placed(index_of(ref("a", "L"), ref("a", "R"), ref("b", "L"), unreferenced=["c"]))

        assert index.reference_count == 3
        assert index.file_count == 3

    def test_names_are_ordered_as_utf_8(self, placed):
        """Filenames are ordered by code point, where UTF-16 would put the last one second."""
        in_order = ["a", "a/b", "\uffff", "\U00010000"]

        index = placed(index_of(*(ref(name, "L") for name in reversed(in_order))))

        assert names(index.references_on("L")) == in_order
        assert all(index.is_tracked(name) for name in in_order)


class TestChanging:
    """What one change does."""

    def test_sets_the_time_of_what_it_adds(self, placed):
        """The state sets when a reference was updated, whatever the caller said (rule STS-5)."""
        before = placed(FileReferences.empty())

        after = before.changed(added=[ref("a", "L", updated=None)], at=LATER)

        assert after.references_on("L") == (ref("a", "L", updated=LATER),)

    def test_replaces_a_reference_that_goes_and_comes(self, placed):
        """A reference both removed and added is replaced: claimed by a job, for example."""
        before = placed(index_of(ref("a", "L"), ref("b", "L")))

        after = before.changed(removed=[("a", "L")], added=[ref("a", "L", job_id="job")], at=LATER)

        assert after.references_on("L") == (
            ref("a", "L", job_id="job", updated=LATER),
            ref("b", "L"),
        )
        assert after.reference_count == 2
        assert after.unreferenced_since("a") is None

    def test_a_file_waits_from_the_loss_of_its_last_reference(self, placed):
        """
        A file that two partitions share waits for garbage collection only when
        the second has let go of it, and from then on (rule FRF-6).
        """
        shared = placed(index_of(ref("a", "L"), ref("a", "R")))

        half = placed(shared.changed(removed=[("a", "L")], at=NOON))
        free = placed(half.changed(removed=[("a", "R")], at=LATER))

        assert half.unreferenced_since("a") is None
        assert free.unreferenced_since("a") == LATER
        assert free.is_tracked("a")
        assert free.references_to("a") == ()
        assert (free.reference_count, free.file_count) == (0, 1)

    def test_a_file_pushed_down_does_not_wait(self, placed):
        """A file whose references move to other partitions in one change is never free."""
        before = placed(index_of(ref("a", "root")))

        after = before.changed(
            removed=[("a", "root")], added=[ref("a", "L"), ref("a", "R")], at=LATER
        )

        assert list(after.unreferenced()) == []
        assert after.partition_ids() == {"L", "R"}

    def test_a_file_referenced_again_waits_no_longer(self, placed):
        """A file is either referenced or unreferenced, never both."""
        before = placed(index_of(unreferenced=["a"]))

        after = before.changed(added=[ref("a", "L")], at=LATER)

        assert before.unreferenced_since("a") == NOON
        assert after.unreferenced_since("a") is None
        assert after.file_count == 1

    def test_a_forgotten_file_is_tracked_no_longer(self, placed):
        """After garbage collection nothing is left of a file, and its name is free (STS-9)."""
        before = placed(index_of(ref("a", "L"), unreferenced=["b", "c"]))

        after = before.changed(forgotten=["b"], at=LATER)

        assert not after.is_tracked("b")
        assert list(after.unreferenced()) == [("c", NOON)]
        assert after.file_count == 2

    def test_older_versions_stay_as_they_were(self, placed):
        """A reader may keep an older version: no change and no fold reaches it."""
        old = placed(index_of(ref("a", "L"), ref("b", "L"), unreferenced=["c"]))

        new = old.changed(
            removed=[("a", "L")], added=[ref("d", "L")], forgotten=["c"], at=LATER
        ).folded()

        assert names(old.references_on("L")) == ["a", "b"]
        assert list(old.unreferenced()) == [("c", NOON)]
        assert names(new.references_on("L")) == ["b", "d"]
        assert list(new.unreferenced()) == [("a", LATER)]

    def test_refuses_to_remove_what_is_not_there(self, placed):
        """A caller that did not check is told, before a file is tracked that never was."""
        index = placed(index_of(ref("a", "L")))

        with pytest.raises(KeyError, match="'R' does not reference file 'a'"):
            index.changed(removed=[("a", "R")], at=LATER)

    def test_refuses_to_forget_a_referenced_file(self, placed):
        """Only a file without references can be forgotten."""
        index = placed(index_of(ref("a", "L")))

        with pytest.raises(KeyError, match="'a' does not wait"):
            index.changed(forgotten=["a"], at=LATER)


class TestUnreferencedFiles:
    """What garbage collection reads."""

    def test_come_by_filename_from_base_and_overlay(self, placed):
        """Old and new unreferenced files come in one order."""
        index = placed(index_of(unreferenced=["d", "b"])).changed(unreferenced=["c", "a"], at=LATER)

        assert list(index.unreferenced()) == [
            ("a", LATER),
            ("b", NOON),
            ("c", LATER),
            ("d", NOON),
        ]

    def test_can_be_limited_to_those_changed_strictly_before(self, placed):
        """A file that has waited since exactly the asked time is not among them (STS-10)."""
        index = placed(index_of(unreferenced=["a"]).changed(unreferenced=["b"], at=LATER))

        assert list(index.unreferenced(before=LATER)) == [("a", NOON)]
        assert list(index.unreferenced(before=NOON)) == []

    def test_can_be_forgotten_while_they_are_read(self, placed):
        """A collector may commit batch by batch while it reads on (rule STS-9)."""
        index = newest = placed(index_of(unreferenced=["a", "b", "c"]))

        seen = []
        for filename, _ in index.unreferenced():
            newest = newest.changed(forgotten=[filename], at=LATER).folded()
            seen.append(filename)

        assert seen == ["a", "b", "c"]
        assert newest.file_count == 0


class TestTotals:
    """What compactions and splits are planned from."""

    def test_add_up_each_partition(self, placed):
        """Estimates count as rows, but only exact counts of whole files as exact."""
        index = placed(
            index_of(
                ref("a", "L", 1),
                ref("b", "L", 10, row_count_estimated=True),
                ref("c", "L", 100, whole_file=False),
                ref("d", "L", 1_000, job_id="job"),
                ref("e", "R", 10_000),
                unreferenced=["f"],
            )
        )

        assert index.totals() == {
            "L": PartitionTotals(
                references=4,
                rows=1_111,
                rows_exact_whole=1_001,
                references_on_jobs=1,
                estimated=True,
            ),
            "R": PartitionTotals(
                references=1,
                rows=10_000,
                rows_exact_whole=10_000,
                references_on_jobs=0,
                estimated=False,
            ),
        }

    def test_follow_a_change(self, placed):
        """What goes is taken away; a partition whose references are all gone is not listed."""
        before = placed(
            index_of(ref("a", "L", 1, row_count_estimated=True), ref("b", "L", 2), ref("c", "R"))
        )

        after = before.changed(removed=[("a", "L"), ("c", "R")], added=[ref("d", "L", 4)], at=LATER)

        assert after.partition_ids() == after.totals().keys() == {"L"}
        assert after.totals()["L"].rows == 6
        assert not after.totals()["L"].estimated


class TestFolding:
    """The overlay and the base."""

    def test_changes_nothing_but_the_overlay(self):
        """A fold keeps the content; a second one has nothing to do."""
        index = index_of(ref("a", "L"), unreferenced=["b"])

        folded = index.folded()

        assert (index.overlay_size, folded.overlay_size) == (2, 0)
        assert folded.to_arrow() == index.to_arrow()
        assert folded.folded() is folded

    def test_happens_by_itself_once_the_overlay_is_large(self):
        """The overlay stays small whatever is done, so that a change costs what it changes."""
        index = EagerIndex.empty()

        sizes = []
        for number in range(20):
            index = index.changed(added=[ref(f"{number:02}", "L")], at=NOON)
            sizes.append(index.overlay_size)

        assert max(sizes) == 5
        assert len(index.references_on("L")) == index.reference_count == 20

    def test_keeps_finding_files_by_name(self):
        """The order by filename is carried from base to base, past rows that come and go."""
        index = index_of(*(ref(f"{number:03}", f"p{number % 7}") for number in range(100)))
        index = index.folded()
        assert index.is_tracked("050")

        newer = index.changed(
            removed=[("000", "p0"), ("050", "p1"), ("099", "p1")],
            added=[ref("!", "p9"), ref("0505", "p3"), ref("~", "a")],
            at=LATER,
        ).folded()

        assert newer.file_count == 103
        assert [newer.is_tracked(name) for name in ("!", "~", "0505", "051", "0")] == [
            *[True] * 4,
            False,
        ]
        assert newer.unreferenced_since("050") == LATER
        assert newer.references_to("0505") == (ref("0505", "p3", updated=LATER),)


class TestArrow:
    """The form in which an index is stored."""

    def test_is_sorted_with_unreferenced_files_first(self):
        """Rows come by partition, null first, then by filename, in the documented columns."""
        index = index_of(ref("a", "R"), ref("b", "L"), ref("a", "L"), unreferenced=["z", "y"])

        table = index.to_arrow()

        assert table.schema == SCHEMA
        rows = zip(table["partition_id"].to_pylist(), table["filename"].to_pylist(), strict=True)
        assert list(rows) == [(None, "y"), (None, "z"), ("L", "a"), ("L", "b"), ("R", "a")]

    def test_holds_no_partition_that_is_gone(self):
        """The dictionary of partitions does not grow with partitions of the past."""
        index = index_of(ref("a", "old"), ref("b", "L")).folded()

        table = index.changed(removed=[("a", "old")], forgotten=[], at=LATER).to_arrow()

        assert table["partition_id"].chunk(0).dictionary.to_pylist() == ["L"]

    def test_may_come_back_in_many_chunks(self):
        """Row groups, each with a dictionary of its own, make one index again."""
        index = index_of(*(ref(f"{n:02}", f"p{n % 3}") for n in range(20)), unreferenced=["x"])

        back = through_parquet(index, row_group_size=3)

        assert back.to_arrow() == index.to_arrow()

    def test_may_come_back_with_plain_strings(self):
        """A reader that knows no dictionaries and no 64-bit offsets loses nothing."""
        index = index_of(ref("a", "L"), ref("b", "R"), unreferenced=["x"])
        table = index.to_arrow()
        for name in ("filename", "partition_id"):
            place = table.schema.get_field_index(name)
            table = table.set_column(place, name, table[name].cast(pa.string()))

        assert FileReferences.from_arrow(table).to_arrow() == index.to_arrow()

    def test_does_not_care_what_lies_under_a_null(self):
        """Unreferenced files are one run of rows, whatever code a reader left in their place."""
        table = index_of(unreferenced=["x", "y", "z"]).to_arrow()
        leftovers = pa.array([0, 1, 0], pa.int32()).buffers()[1]
        codes = pa.Array.from_buffers(pa.int32(), 3, [pa.py_buffer(b"\0"), leftovers])
        partitions = pa.DictionaryArray.from_arrays(codes, pa.array(["L", "R"]))

        index = FileReferences.from_arrow(table.set_column(1, SCHEMA.field(1), partitions))

        assert index.file_count == 3
        assert index.partition_ids() == frozenset()

    @pytest.mark.parametrize(
        "order",
        [[1, 0, 2, 3], [0, 2, 1, 3], [0, 1, 3, 2], [0, 1, 1, 2, 3], [0, 0, 1], [0, 3, 1]],
        ids=str,
    )
    def test_is_refused_out_of_order(self, order):
        """Rows in another order, or twice, would be looked up wrongly, so they are refused."""
        table = index_of(ref("a", "L"), ref("b", "L"), ref("a", "R"), unreferenced=["x"]).to_arrow()

        with pytest.raises(ValueError, match="not in order"):
            FileReferences.from_arrow(table.take(order))

    def test_is_refused_with_a_value_missing(self):
        """A damaged table is noticed when it is opened, not when it is asked."""
        table = index_of(ref("a", "L")).to_arrow()
        table = table.set_column(2, "row_count", pa.nulls(1, pa.int64()))

        with pytest.raises(ValueError, match="'row_count'"):
            FileReferences.from_arrow(table)


FILES = st.sampled_from([f"data/{name}.parquet" for name in "abcdefghij"])
PARTITIONS = st.sampled_from(["root", "L", "R", "LL", "LR"])
FIELDS = st.fixed_dictionaries(
    {
        "row_count": st.integers(0, 1_000),
        "row_count_estimated": st.booleans(),
        "whole_file": st.booleans(),
        "job_id": st.none() | st.sampled_from(["job-1", "job-2"]),
    }
)


@given(st.dictionaries(st.tuples(st.text(max_size=3), st.text(max_size=3)), FIELDS, max_size=20))
def test_any_names_survive_storage(references):
    """Whatever files and partitions are called, Parquet gives back the same index."""
    held = [ref(name, partition, **each) for (name, partition), each in references.items()]
    index = index_of(*held)

    back = through_parquet(index)

    assert back.reference_count == len(held)
    assert all(back.reference(each.filename, each.partition_id) == each for each in held)
    assert back.file_count == len({each.filename for each in held})


class AnyOrderOfChanges(RuleBasedStateMachine):
    """Changes, folds and round trips in any order, beside two plain dictionaries."""

    versions = Bundle("versions")

    def __init__(self):
        super().__init__()
        self.index: FileReferences = EagerIndex.empty()
        self.references: dict[tuple[str, str], FileReference] = {}
        self.since: dict[str, datetime] = {}
        self.now = NOON

    def change(self, *, removed=(), added=(), unreferenced=(), forgotten=()):
        self.now += timedelta(seconds=1)
        self.index = self.index.changed(
            removed=removed,
            added=added,
            unreferenced=unreferenced,
            forgotten=forgotten,
            at=self.now,
        )
        for pair in removed:
            del self.references[pair]
        for each in added:
            pair = (each.filename, each.partition_id)
            self.references[pair] = ref(*pair, **fields(each), updated=self.now)
            self.since.pop(each.filename, None)
        held = {filename for filename, _ in self.references}
        self.since |= {name: self.now for name, _ in removed if name not in held}
        self.since |= dict.fromkeys(unreferenced, self.now)
        for filename in forgotten:
            del self.since[filename]

    @rule(added=st.dictionaries(st.tuples(FILES, PARTITIONS), FIELDS, max_size=4))
    def add_or_overwrite(self, added):
        self.change(added=[ref(*pair, **each) for pair, each in added.items()])

    @rule(files=st.sets(FILES, max_size=3))
    def track(self, files):
        held = {filename for filename, _ in self.references}
        self.change(unreferenced=sorted(files - held - self.since.keys()))

    @precondition(lambda self: self.references)
    @rule(data=st.data(), new=st.dictionaries(st.tuples(FILES, PARTITIONS), FIELDS, max_size=2))
    def replace(self, data, new):
        pairs = data.draw(st.sets(st.sampled_from(sorted(self.references)), max_size=4))
        again = data.draw(st.sets(st.sampled_from(sorted(pairs)))) if pairs else set()
        claimed = [ref(*pair, job_id="claimed") for pair in again]
        added = [ref(*pair, **each) for pair, each in new.items() if pair not in again]
        self.change(removed=sorted(pairs), added=[*claimed, *added])

    @precondition(lambda self: self.since)
    @rule(data=st.data())
    def forget(self, data):
        self.change(forgotten=data.draw(st.sets(st.sampled_from(sorted(self.since)))))

    @rule()
    def fold(self):
        self.index = self.index.folded()

    @rule()
    def store_and_open(self):
        self.index = EagerIndex.from_arrow(self.index.to_arrow())

    @rule(target=versions)
    def keep_a_version(self):
        return self.index, dict(self.references), dict(self.since)

    @rule(version=versions)
    def look_at_an_old_version(self, version):
        check(*version)

    @invariant()
    def the_index_is_what_the_dictionaries_are(self):
        check(self.index, self.references, self.since)


def test_bytes_count_each_referenced_file_once(placed):
    """Given a whole file, a file that two leaves share, and garbage, then the bytes are those of
    the first two; a file of unknown size is left out, and that is told.
    """
    held = [
        ref("whole", "a", size_bytes=700),
        ref("shared", "a", size_bytes=41, whole_file=False),
        ref("shared", "b", size_bytes=41, whole_file=False),
    ]

    assert placed(index_of(*held, unreferenced=["gone"])).referenced_bytes() == (741, True)
    unknown = index_of(*held, ref("old", "b", size_bytes=None))
    assert placed(unknown).referenced_bytes() == (741, False)
    assert placed(FileReferences.empty()).referenced_bytes() == (0, True)


def test_the_first_partition_that_has_a_file_tells_its_size(placed):
    """Given a file that two partitions have, then the first that is asked for tells the size."""
    index = placed(index_of(ref("a", "L", size_bytes=7), ref("a", "R", size_bytes=None)))

    assert index.size_bytes("a", ["X", "L", "R"]) == 7
    assert index.size_bytes("a", ["R", "L"]) is None
    assert index.size_bytes("b", ["L", "R"]) is None


def fields(reference: FileReference) -> dict:
    return {
        name: getattr(reference, name)
        for name in ("row_count", "row_count_estimated", "whole_file", "job_id")
    }


def check(
    index: FileReferences,
    references: dict[tuple[str, str], FileReference],
    since: dict[str, datetime],
) -> None:
    """Compare every answer of an index with what plain dictionaries say."""
    held = sorted(references.values(), key=lambda each: (each.partition_id, each.filename))
    files = {each.filename for each in held} | since.keys()
    partitions = {each.partition_id for each in held}

    for name in files | {"data/e.parquet", "never"}:
        assert index.references_to(name) == tuple(each for each in held if each.filename == name)
        assert index.is_tracked(name) == (name in files)
        assert index.unreferenced_since(name) == since.get(name)
    for partition_id in partitions | {"root"}:
        on = tuple(each for each in held if each.partition_id == partition_id)
        assert index.references_on(partition_id) == on
        assert index.filenames_on(partition_id) == [each.filename for each in on]
    assert all(index.reference(*pair) == each for pair, each in references.items())
    for (name, partition_id), each in references.items():
        assert index.size_bytes(name, ["no such", partition_id]) == each.size_bytes
        assert index.size_bytes(name, ["no such"]) is None
    middle = sorted(since.values())[len(since) // 2] if since else NOON
    assert list(index.unreferenced()) == sorted(since.items())
    assert list(index.unreferenced(middle)) == sorted(
        (name, at) for name, at in since.items() if at < middle
    )
    assert (index.reference_count, index.file_count) == (len(held), len(files))
    assert index.partition_ids() == partitions
    assert index.totals() == {each: totals_of(held, each) for each in partitions}
    table = index.to_arrow()
    assert table["filename"].to_pylist() == [*sorted(since), *names(held)]


def totals_of(held: list[FileReference], partition_id: str) -> PartitionTotals:
    on = [each for each in held if each.partition_id == partition_id]
    exact = [each for each in on if each.whole_file and not each.row_count_estimated]
    return PartitionTotals(
        references=len(on),
        rows=sum(each.row_count for each in on),
        rows_exact_whole=sum(each.row_count for each in exact),
        references_on_jobs=sum(each.job_id is not None for each in on),
        estimated=any(each.row_count_estimated for each in on),
    )


TestAnyOrderOfChanges = pytest.mark.soak(AnyOrderOfChanges.TestCase)
# Every answer is compared after every step, so a few hundred steps say a lot.
TestAnyOrderOfChanges.settings = settings(
    max_examples=tries(25, soak=2_000), stateful_step_count=25
)

"""Log entries as JSON."""

from __future__ import annotations

import json
from base64 import b64decode
from contextlib import suppress
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.errors import (
    BadRequest,
    CommitRefused,
    DataDamaged,
    FormatTooNew,
    VersionNotFound,
)
from sleeper.model.authors import Author
from sleeper.model.files import key_to_text
from sleeper.model.ranges import whole_region
from sleeper.model.schema import Field, Primitive, Schema
from sleeper.state.log_entry import (
    LogEntry,
    changed_keys,
    decode_entry,
    encode_entry,
    entry_digest,
    without_keys,
)
from sleeper.state.transactions.files import AddFiles, ClearFiles, ReplaceFiles
from sleeper.state.transactions.partitions import InitialisePartitions
from tests.unit.state.any_transactions import TIMES, moves, schemas, transactions
from tests.unit.state.small_tables import (
    LATER,
    NOON,
    ROOT,
    SCHEMA,
    after,
    part,
    ref,
    split,
    two_leaves,
)


def entry(*transactions, entry_id="entry-1", at=NOON):
    return LogEntry(entry_id=entry_id, at=at, transactions=transactions)


def document(*transactions):
    return json.loads(encode_entry(entry(*transactions), SCHEMA))


@given(st.data(), schemas, TIMES)
def test_every_transaction_reads_back_as_it_was(data, schema, at):
    """Any transaction over any schema, alone or with others in one entry."""
    written = entry(*data.draw(st.lists(transactions(schema) | moves, max_size=3)), at=at)

    assert decode_entry(encode_entry(written, schema), schema, "entry 1") == written


class TestFormat2:
    """Entries whose keys of rows are apart from all else, and which name the entry before."""

    @given(
        st.data(), schemas, TIMES, st.none() | st.text("0123456789abcdef", min_size=64, max_size=64)
    )
    def test_every_transaction_reads_back_as_it_was(self, data, schema, at, prev):
        """Given any transactions and any entry before, both are read as they were written."""
        drawn = data.draw(st.lists(transactions(schema) | moves, max_size=3))
        written = replace(entry(*drawn, at=at), format=2, prev=prev)

        body = encode_entry(written, schema, new_id=ids())

        assert decode_entry(body, schema, "entry 1") == written
        assert changed_keys(body) == 0

    def test_has_its_keys_in_a_second_line_each_once(self):
        """Given two files and a split whose keys are partly the same, each is in the second line."""
        body = of_people("ann@a.org", "zoë@z.org", split_at="zoë@z.org")

        first, second = body.split(b"\n")

        assert json.loads(second)["keys"] == ["ann@a.org", "zoë@z.org", ""]
        assert b"@" not in first
        assert "zoë@z.org".encode() in second

    def test_without_a_key_nothing_tells_what_it_was(self):
        """Given an entry, when a key is removed, its salt goes with it, and the digest of the entry
        is the same; the file whose first key it was has no known keys.
        """
        body = of_people("ann@a.org", "zoë@z.org")

        purged = without_keys(body, ["ann@a.org"])

        assert b"ann" not in purged
        assert json.loads(purged.split(b"\n")[1])["keys"] == [None, "zoë@z.org"]
        assert entry_digest(purged) == entry_digest(body)
        assert changed_keys(purged) == 0
        (added,) = decode_entry(purged, PEOPLE, "entry 1").transactions
        assert [(each.first_key, each.last_key) for each in added.references] == [
            (None, '["zo\\u00eb@z.org"]')
        ]

    def test_without_a_key_its_salt_is_nowhere(self):
        """Given two keys with a salt each, when one is removed, its salt is in no place of the entry:
        whoever guesses a key cannot try the guess.
        """
        whole = of_people("ann@a.org", "zoë@z.org")
        purged = without_keys(whole, ["ann@a.org"])

        salts, left = (
            b64decode(json.loads(body.split(b"\n")[1])["salts"]) for body in (whole, purged)
        )

        assert salts[:16] != salts[16:]
        assert left == bytes(16) + salts[16:]

    def test_a_state_whose_limits_were_keys_of_purged_rows_is_not_there(self):
        """Given a split at a key, when that is removed, the entry cannot be applied, and says so."""
        purged = without_keys(of_people("ann@a.org", split_at="bob@b.org"), ["bob@b.org"])

        with pytest.raises(
            VersionNotFound, match=r"entry 7 had limits of partitions .* purged rows"
        ):
            decode_entry(purged, PEOPLE, "entry 7")

    @pytest.mark.parametrize(
        "change",
        [
            lambda text: text.replace("ann", "eve"),
            lambda text: text.replace('"salts":"', '"salts":"AA'),
            lambda text: text.replace('"keys":["ann@a.org",', '"keys":['),
            lambda text: text.split("\n")[0],
        ],
    )
    def test_changed_keys_are_noticed(self, change):
        """Given an entry, when its second line is changed, it is damaged or has changed keys."""
        changed = change(of_people("ann@a.org", "zoë@z.org").decode()).encode()

        try:
            decode_entry(changed, PEOPLE, "entry 7")
        except DataDamaged:
            return
        assert changed_keys(changed) == 1

    def test_says_who_committed_and_why(self):
        """Given transactions of two people, each is read with its author and reason."""
        added = [
            AddFiles(references=(ref(name),)).signed(Author(by, reason))
            for name, by, reason in (("a", "ann@build7", None), ("b", "token etl", "ticket 4711"))
        ]

        body = encode_entry(replace(entry(*added), format=2), SCHEMA, new_id=ids())

        assert [each.author for each in decode_entry(body, SCHEMA, "").transactions] == [
            Author("ann@build7"),
            Author("token etl", "ticket 4711"),
        ]


PEOPLE = Schema(row_keys=(Field("email", Primitive.STRING),))


def ids():
    """Ids that are random enough for a test, and the same in each run."""
    return map("id {}".format, count()).__next__


def of_people(first, last=None, *, split_at=None):
    """An entry of format 2 that adds a file of people, and splits their table."""
    keys = [None if key is None else key_to_text((key,), PEOPLE) for key in (first, last)]
    added = [AddFiles(references=(ref("a", first_key=keys[0], last_key=keys[1]),))]
    if split_at is not None:
        added.append(split(replace(ROOT, region=whole_region(PEOPLE)), split_at, "L", "R"))
    return encode_entry(replace(entry(*added), format=2), PEOPLE, new_id=ids())


class TestTheFormat:
    """What an entry looks like to somebody who opens it."""

    def test_names_its_format_its_writer_and_its_time(self):
        """The frame around the transactions."""
        assert document() == {
            "format": 1,
            "entryId": "entry-1",
            "at": "2026-05-04T12:00:00+00:00",
            "transactions": [],
        }

    def test_has_upstreams_names(self):
        """Rule STS-12, and the commit of a compaction (rule STS-8)."""
        output = part("new", "L", 7)
        compaction = ReplaceFiles(
            job_id="job", inputs=("a", "b"), output=output, task_id="task", run_id="run"
        )

        assert document(compaction)["transactions"] == [
            {
                "type": "REPLACE_FILE_REFERENCES",
                "jobId": "job",
                "inputFiles": ["a", "b"],
                "newReference": {
                    "filename": "new",
                    "partitionId": "L",
                    "numberOfRows": 7,
                    "countApproximate": True,
                    "onlyContainsDataForThisPartition": False,
                },
                "taskId": "task",
                "jobRunId": "run",
            }
        ]

    def test_writes_a_partition_with_its_limits(self):
        """Each row key field has [min, max]; null is no limit."""
        written = document(split(ROOT, 50, "L", "R"))["transactions"][0]

        assert written["type"] == "SPLIT_PARTITION"
        assert written["partitions"][1] == {
            "partitionId": "L",
            "region": [[-(2**63), 50]],
            "parentPartitionId": "root",
        }

    def test_does_not_repeat_what_the_state_knows(self):
        """When a reference changed is the entry's own time (STS-5)."""
        added = AddFiles(references=(ref("a", updated=LATER),))

        assert document(added)["transactions"][0]["references"] == [
            {"filename": "a", "partitionId": "root", "numberOfRows": 100}
        ]

    def test_keeps_text_as_it_is(self):
        """A person can read file names and key values of any language."""
        assert "größe" in encode_entry(entry(AddFiles(references=(ref("größe"),))), SCHEMA).decode()


class TestDamage:
    """Reading what `encode_entry` did not write."""

    def test_a_newer_format_asks_for_an_upgrade(self):
        """It is not damaged; this Sleeper is old. The message names the entry."""
        newer = json.dumps({"format": 3, "changes": []}).encode()

        with pytest.raises(FormatTooNew, match="entry 7 has format 3"):
            decode_entry(newer, SCHEMA, "entry 7")

    def test_a_newer_type_of_transaction_asks_for_an_upgrade(self):
        """It is not damaged either: a reader that went on without it would answer wrong."""
        known = encode_entry(entry(ClearFiles()), SCHEMA)
        newer = known.replace(b"CLEAR_FILES", b"MERGE_BRANCH")

        with pytest.raises(FormatTooNew, match="entry 7 has a transaction of type 'MERGE_BRANCH'"):
            decode_entry(newer, SCHEMA, "entry 7")

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"\xff\xfe",
            b"null",
            b"[]",
            b"{}",
            b'{"format":0,"entryId":"x","at":"2026-05-04T12:00:00+00:00","transactions":[]}',
            b'{"format":1,"entryId":7,"at":"2026-05-04T12:00:00+00:00","transactions":[]}',
            b'{"format":1,"entryId":"x","at":"2026-05-04T12:00:00","transactions":[]}',
            b'{"format":1,"entryId":"x","at":"noon","transactions":[]}',
            b'{"format":1,"entryId":"x","at":"2026-05-04T12:00:00+00:00","transactions":[7]}',
            b'{"format":1,"entryId":"x","at":"2026-05-04T12:00:00+00:00","transactions":[{"type":"X"}]}',
            b"[" * 100_000,
        ],
    )
    def test_anything_else_is_damage_and_is_named(self, body):
        """Truncated, foreign, or with values of the wrong type."""
        with pytest.raises(DataDamaged, match="entry 7"):
            decode_entry(body, SCHEMA, "entry 7")

    @given(st.data())
    def test_every_change_of_an_entry_is_noticed_or_harmless(self, data):
        """
        With one byte changed or the end missing, an entry is damaged or reads as some entry:
        never another error.
        """
        written = entry(
            AddFiles(references=(ref("a"), part("b", "L"))),
            split(ROOT, 50, "L", "R"),
            InitialisePartitions(partitions=(ROOT,)),
        )
        body = bytearray(encode_entry(written, SCHEMA))
        place = data.draw(st.integers(0, len(body) - 1))
        body[place] = data.draw(st.integers(0, 255))
        if data.draw(st.booleans()):
            del body[place:]

        try:
            read = decode_entry(bytes(body), SCHEMA, "entry 7")
        except (DataDamaged, FormatTooNew) as error:
            read = str(error)

        assert isinstance(read, LogEntry) or "entry 7" in read


def test_a_time_that_no_clock_shows_is_damage():
    """A delay cannot be added to it: garbage and leases would end in an error of Python."""
    body = encode_entry(entry(ClearFiles()), SCHEMA).replace(b"2026", b"9999")

    with pytest.raises(DataDamaged, match="is out of range"):
        decode_entry(body, SCHEMA, "entry 7")


class TestWritingNonsense:
    """A value that could not be read back stops its writer."""

    @pytest.mark.parametrize(
        "nonsense",
        [
            AddFiles(references=(ref("a", row_count=5.0),)),
            AddFiles(references=(ref("a", row_count=True),)),
            AddFiles(references=(ref(7),)),
            AddFiles(references=(ref("\ud800"),)),
            AddFiles(unreferenced=(None,)),
            split(ROOT, 50.5, "L", "R"),
            replace(split(ROOT, 50, "L", "R"), children=()),
            "no transaction",
        ],
    )
    def test_is_refused_before_anything_is_written(self, nonsense):
        """Wrong types, text that UTF-8 cannot hold, and what is no transaction at all."""
        with pytest.raises(BadRequest, match="cannot be written"):
            encode_entry(entry(nonsense), SCHEMA)

    def test_a_time_needs_a_zone(self):
        """Two machines would read it differently."""
        with pytest.raises(BadRequest, match="no time zone"):
            encode_entry(entry(ClearFiles(), at=NOON.replace(tzinfo=None)), SCHEMA)


@given(st.lists(transactions(SCHEMA), max_size=5))
def test_transactions_refuse_in_one_way_only(tried):
    """Whatever a transaction names, the answer is a new state or a CommitRefused."""
    table = two_leaves()
    for transaction in tried:
        with suppress(CommitRefused):
            table = after(table, transaction)

    assert table.number >= 2

"""A data file of which any byte was changed is never taken for a good one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from sleeper.engine.arrow_schema import to_arrow
from sleeper.engine.reading.check_file import FileChecker, KeyBatch, KeyChecks, ReferencedFile
from sleeper.model.ranges import whole_region
from sleeper.storage.memory import MemoryObjects
from tests.soak import some
from tests.unit.tables.small_tables import NOON, PAIRS, small_table

ROWS = 6000


@pytest.fixture(scope="module")
def written():
    """A file with a sketch, Bloom filters and page sums, and its reference."""
    table = small_table()
    rows = pa.table(
        {
            "a": pa.array(range(ROWS), pa.int64()),
            "b": [f"b{n % 97}" for n in range(ROWS)],
            "v": pa.array(range(ROWS), pa.int64()),
        }
    )
    table.ingest(rows.to_pylist())
    (reference,) = table.store.state().references()
    return table.files.read(reference.filename), reference


def findings(body, reference):
    files = MemoryObjects(now=lambda: NOON)
    files.put(reference.filename, body)
    checker = FileChecker(files, PAIRS, to_arrow(PAIRS), quick=False)
    file = ReferencedFile(
        filename=reference.filename, references=(reference,), regions=(whole_region(PAIRS),)
    )
    return checker.check(file).findings


def flipped(body, place):
    changed = bytearray(body)
    changed[place] ^= 1 << place % 8
    return bytes(changed)


def test_a_file_as_it_was_written_has_no_finding(written):
    """Given the bytes that were written, then nothing is wrong."""
    assert findings(*written) == ()


@pytest.mark.soak
def test_a_changed_bit_anywhere_is_found(written):
    """
    Given each byte with one bit changed (`make soak`; otherwise one byte in 97), then the file has
    a finding. But for the eight bytes that say that it has page sums: without them the pages'
    own checksums are compared.
    """
    body, reference = written
    magic = body.rindex(b"SLPRSUM1")
    places = some(range(len(body)), one_in=97)

    unseen = [
        place
        for place in places
        if not magic <= place < magic + 8 and not findings(flipped(body, place), reference)
    ]

    assert unseen == []


def test_a_file_without_its_sketch_is_found(written):
    """Given a file of which the place of the sketch has another name, then the sketch is missed."""
    body, reference = written

    (found,) = findings(body.replace(b"SLPRSKP1", b"SLPRSKP0"), reference)

    assert found.kind == "sketch"


def test_rows_are_compared_across_batches_of_keys():
    """Given two batches, each in order, then the first row of the second is compared as well."""
    checks = KeyChecks(PAIRS, (), np.empty(0, np.int64))
    index = None
    for first, values in ((0, [1, 5]), (2, [4, 6])):
        keys = pa.record_batch({"a": pa.array(values, pa.int64()), "b": ["x", "y"]})
        checks.add(KeyBatch(0, first, keys), index, None)

    (fault,) = checks.faults.values()
    assert "row 2 is less than the one before" in fault

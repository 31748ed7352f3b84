"""What references say of their files: size, schema, keys and sequence."""

from __future__ import annotations

from collections import Counter

import pytest

from sleeper.engine.reading.read_leaves import open_table_reader
from sleeper.model.files import key_from_text
from sleeper.model.processing import Processing
from sleeper.model.ranges import whole_region
from sleeper.tables.read_rows import query_key, query_keys, query_regions
from tests.unit.tables.small_tables import PAIRS, small_table, store_of

ROWS = [(7, "x"), (-1, "y"), (3, "z")]


@pytest.fixture(params=[True, False], ids=["a file a leaf", "one file"])
def table(request):
    table = small_table([3])
    table.ingest(ROWS, one_file_per_leaf=request.param)
    return table


def test_a_reference_says_how_long_its_file_is_and_between_which_keys_it_lies(table):
    """Sizes and keys are exact; the sequence is the transaction that added the file."""
    state = table.store.refresh()
    references = state.references()

    assert len(references) == 2
    keys = {
        key_from_text(text, PAIRS)
        for each in references
        for text in (each.first_key, each.last_key)
    }
    assert keys >= {(-1, "y"), (7, "x")}
    for each in references:
        assert each.size_bytes == table.files.size(each.filename)
        assert (each.schema_id, each.sequence) == (1, state.number)


def test_the_log_has_the_schema(table):
    """Once, with the table's first commit; another process reads it."""
    state = store_of(table.objects, "t1", table.new_id).refresh()

    assert dict(state.schemas) == {1: PAIRS}
    assert state.references() == table.store.refresh().references()


@pytest.mark.parametrize("asked", ["key", "keys", "range"])
def test_no_read_asks_how_long_a_file_is(table, asked, monkeypatch):
    """The state knows; in a bucket that saves a request before the first read of each file."""
    calls = Counter()
    size = type(table.files).size

    def counted(objects, key):
        calls[key] += 1
        return size(objects, key)

    monkeypatch.setattr(type(table.files), "size", counted)
    reader = open_table_reader(table.files, PAIRS, Processing(), temp_folder=None, stores=None)
    state = table.store.refresh()
    if asked == "key":
        rows = query_key(reader, state, (7, "x"), None, 0)
    elif asked == "keys":
        rows = query_keys(reader, state, [(7, "x"), (-1, "y")], None, 0)
    else:
        rows = query_regions(reader, state, [whole_region(PAIRS)], None, 0)

    assert rows.to_arrow().num_rows == {"key": 1, "keys": 2, "range": 3}[asked]
    assert calls == {}

"""`instance["flights"]`: tables by name, as a new user types it."""

from __future__ import annotations

import pyarrow as pa
import pytest
from IPython.core import completer

import sleeper
from sleeper.errors import TableNotFound

SCHEMA = pa.schema([("id", pa.string())])
NAMES = ["a b", "flights", "ü"]


@pytest.fixture
def instance(tmp_path):
    made = sleeper.connect(tmp_path, create=True)
    for name in reversed(NAMES):
        made.create_table(name, SCHEMA, row_keys=["id"])
    return made


def test_a_table_is_found_by_its_name(instance):
    """With the same methods as by `table`."""
    instance["flights"].ingest([{"id": "x"}])

    assert instance["flights"].query(key="x").to_pylist() == [{"id": "x"}]


def test_a_name_that_is_not_there_is_a_lookup_error(instance):
    """The message names similar ones, with or without a name that exists."""
    with pytest.raises(TableNotFound, match="did you mean 'flights'"):
        instance["fligths"]
    with pytest.raises(LookupError):
        instance["none"]
    for odd in (3, None, b"flights"):
        with pytest.raises(sleeper.BadRequest, match="must be a string"):
            instance[odd]


def test_names_can_be_listed_and_asked_for(instance):
    """Python would otherwise count places from 0, as in a list."""
    assert [*instance] == instance._ipython_key_completions_() == NAMES
    assert "flights" in instance
    assert "fligths" not in instance
    assert 3 not in instance
    instance.delete_table("flights")
    assert "flights" not in instance


def test_ipython_completes_names(instance):
    """After `instance["` and some letters."""
    found = completer.IPCompleter(namespace={"instance": instance})
    found.use_jedi = False

    with completer.provisionalcompleter():
        texts = {each.text for each in found.completions('instance["fl', 12)}

    assert any("flights" in text for text in texts), texts

"""What editors know of `Table` and `Instance` from their source, without running it."""

from __future__ import annotations

import inspect
import pickle
from pathlib import Path

import jedi
import pytest

import sleeper
from sleeper.instance.instance import Instance
from sleeper.tables.table import Table

SOURCE = Path(sleeper.__file__).parents[1]
PROJECT = jedi.Project(SOURCE, sys_path=[str(SOURCE)], smart_sys_path=False)
CODE = """\
import sleeper

def use(instance: sleeper.Instance, table: sleeper.Table):
    {call}
"""
CALLS = [
    *(("table", Table, name) for name in ("ingest", "bulk_import", "query", "count", "sql")),
    *(("table", Table, name) for name in ("compact", "split_partitions", "merge_partitions")),
    *(("table", Table, name) for name in ("collect_garbage", "sweep_orphans", "verify", "export")),
    *(("table", Table, name) for name in ("history", "diff", "rename", "migrate_state")),
    *(("instance", Instance, name) for name in ("create_table", "delete_table", "table", "sql")),
    *(("instance", Instance, name) for name in ("verify", "backup", "set_properties")),
]


def script(call: str) -> jedi.Script:
    return jedi.Script(CODE.format(call=call), project=PROJECT)


def public_methods(owner: type) -> set[str]:
    return {name for name in dir(owner) if not name.startswith("_")}


@pytest.mark.parametrize(("variable", "owner"), [("table", Table), ("instance", Instance)])
def test_completion_offers_every_public_name(variable, owner):
    """After a dot an editor lists methods and properties."""
    completions = script(f"{variable}.").complete(4, len(f"    {variable}."))

    assert public_methods(owner) <= {each.name for each in completions}


@pytest.mark.parametrize(("variable", "owner", "name"), CALLS)
def test_a_call_shows_its_arguments_and_what_they_mean(variable, owner, name):
    """While a call is typed, an editor shows the arguments; on demand, the docstring."""
    (signature,) = script(f"{variable}.{name}(").get_signatures(4, len(f"    {variable}.{name}("))

    arguments = [*inspect.signature(getattr(owner, name)).parameters][1:]
    shown = [each.name for each in signature.params if each.to_string() != "*"]
    assert shown == arguments
    assert inspect.getdoc(getattr(owner, name)) in signature.docstring()


@pytest.mark.parametrize(("variable", "owner", "name"), CALLS)
def test_go_to_definition_leads_to_the_method(variable, owner, name):
    """And from its body on to the module of the verb."""
    (place,) = script(f"{variable}.{name}").goto(4, len(f"    {variable}.{name}"))

    assert place.type == "function"
    assert str(place.module_path) == inspect.getsourcefile(owner)
    assert place.line == inspect.getsourcelines(getattr(owner, name))[1]


@pytest.mark.parametrize(
    ("call", "result"),
    [
        ("table.ingest([])", "IngestResult"),
        ("table.query(key=1)", "Rows"),
        ("table.compact()", "CompactionSummary"),
        ("table.verify()", "VerifySummary"),
        ("instance.create_table('t', '{}')", "Table"),
        ("instance.jobs", "InstanceJobs"),
    ],
)
def test_the_type_of_a_result_is_known(call, result):
    """So completion goes on after a call."""
    code = CODE.format(call=f"found = {call}\n    found")
    found = jedi.Script(code, project=PROJECT).infer(5, len("    found"))

    assert {each.name for each in found} == {result}


def test_a_method_may_be_pickled():
    """As every function of a class may: another process finds it by its name."""
    assert pickle.loads(pickle.dumps(Table.compact)) is Table.compact

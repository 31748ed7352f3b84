"""`sleeper table`: creates, shows, changes and deletes tables."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import pyarrow as pa

from sleeper.engine.arrow_schema import type_of_arrow
from sleeper.engine.inputs.data_schema import schema_of
from sleeper.errors import SchemaInvalid
from sleeper.instance.instance import input_store
from sleeper.interfaces.cli.completion import complete_table_settings, complete_tables
from sleeper.interfaces.cli.options import (
    ask,
    csv_options,
    force_option,
    instance_option,
    json_option,
    split_pairs,
    text_of,
)
from sleeper.interfaces.cli.present import counted, print_facts, print_grid, print_json, say
from sleeper.interfaces.connection import connect
from sleeper.interfaces.json_documents import change_document
from sleeper.model.csv_options import CsvOptions
from sleeper.model.formats.properties_file import read_properties
from sleeper.model.formats.split_points_file import read_split_points, write_split_points
from sleeper.model.schema import Field, FieldType, Schema, type_from_text, type_to_text
from sleeper.model.tables import NAME, SCHEMA
from sleeper.tables.extend_partitions import estimate_split_points
from sleeper.tables.upgrade import FormatChange

readable_file = click.Path(exists=True, dir_okay=False, path_type=Path)
splits_file_option = click.option(
    "--splits-file", type=readable_file, help="Split points, one on each line."
)
splits_base64_option = click.option(
    "--splits-base64", is_flag=True, help="String split points are base64."
)


class _TableCommands(click.Group):
    """Commands of tables, which also have the names that they have elsewhere."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command by its name, or by one that it has in another program."""
        return super().get_command(ctx, _OTHER_NAMES.get(cmd_name, cmd_name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that was typed, or say which one of all tables it is."""
        if args[0] in _NOT_OF_TABLES:
            raise click.UsageError(
                f"No such command {args[0]!r}. Did you mean 'sleeper {args[0]}'?", ctx
            )
        return super().resolve_command(ctx, args)


_OTHER_NAMES = {"create": "add", "drop": "delete", "describe": "show"}
_NOT_OF_TABLES = frozenset(
    ("query", "ingest", "sql", "history", "split", "merge", "compact", "gc", "verify", "export")
)


@click.group(cls=_TableCommands)
def table() -> None:
    """Add, list, show, change and delete tables.

    create, drop and describe are other names of add, delete and show.

    \b
    Example:
        sleeper table add flights --like flights.csv --row-key tailnum
        sleeper table add flights --schema schema.json
    """


@table.command()
@click.argument("name")
@click.option("--schema", "schema_file", type=readable_file, help="Schema JSON.")
@click.option("--like", metavar="FILE", help="Data whose columns the table is to have.")
@click.option("--row-key", "row_keys", multiple=True, metavar="FIELD", help="With --like: a key.")
@click.option(
    "--sort-key", "sort_keys", multiple=True, metavar="FIELD", help="With --like: orders rows."
)
@csv_options
@click.option("--properties", "properties_file", type=readable_file, help="Table properties.")
@splits_file_option
@splits_base64_option
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="K=V",
    shell_complete=complete_table_settings,
    help="A table property.",
)
@instance_option
@json_option
def add(
    *,
    name: str,
    schema_file: Path | None,
    like: str | None,
    row_keys: tuple[str, ...],
    sort_keys: tuple[str, ...],
    csv: CsvOptions | None,
    properties_file: Path | None,
    splits_file: Path | None,
    splits_base64: bool,
    settings: tuple[str, ...],
    instance: str,
    as_json: bool,
) -> None:
    """Create the table NAME, without rows.

    Its schema is that of --schema, or that of the columns of --like: a file of
    Parquet, CSV or JSON lines. Types of text are what the first 8 MiB suggest:
    the schema is shown. For others write it, starting with that of table show.

    Without --splits-file, split points come from the file that the property
    sleeper.table.splits.file names, if it is set. NAME goes before a name in the
    file of --properties.

    \b
    Example:
        sleeper table add flights --schema schema.json --splits-file splits.txt
        sleeper table add flights --like flights.csv --row-key tailnum --sort-key at
    """
    schema = _given_schema(schema_file, like, row_keys, sort_keys, csv)
    properties = read_properties(text_of(properties_file)) if properties_file else {}
    properties.pop(NAME, None)
    properties |= dict(split_pairs(settings, "--set"))
    points = _split_points(splits_file, schema, base64_encoded=splits_base64)
    made = connect(instance).create_table(name, schema, split_points=points, properties=properties)
    if as_json:
        print_json(
            {"name": made.name, "id": made.table_id, "schema": _schema_document(made.schema)}
        )
        return
    leaves = counted(made.report_files().leaf_partitions, "leaf partition")
    say(f"made table {made.name} ({made.table_id}) with {leaves}")
    if like is not None:
        _print_fields(made.schema)


def _given_schema(
    schema_file: Path | None,
    like: str | None,
    row_keys: tuple[str, ...],
    sort_keys: tuple[str, ...],
    csv: CsvOptions | None,
) -> Schema:
    """Return the schema of a new table."""
    if (schema_file is None) == (like is None):
        raise click.UsageError("give --schema FILE, or --like FILE with --row-key FIELD")
    if like is not None:
        if not row_keys:
            raise click.UsageError("--like needs --row-key FIELD: rows are found by it")
        return schema_of([like], row_keys, sort_keys, csv=csv, remote=input_store())
    if row_keys or sort_keys or csv is not None:
        raise click.UsageError("--row-key, --sort-key and options of CSV go with --like")
    assert schema_file is not None
    return Schema.from_json(text_of(schema_file))


def _print_fields(schema: Schema) -> None:
    """Print the fields of a schema, with a line before them."""
    groups = (
        ("row key", schema.row_keys),
        ("sort key", schema.sort_keys),
        ("value", schema.values),
    )
    lines = {
        f.name: [f.name, type_to_text(f.type) + (" or null" if f.nullable else ""), kind]
        for kind, fields in groups
        for f in fields
    }
    click.echo()
    print_grid(["field", "type", "kind"], [lines[name] for name in schema.columns])


@table.command("list")
@instance_option
@json_option
def list_tables(instance: str, as_json: bool) -> None:
    """List the tables by name.

    \b
    Example:
        sleeper table list
    """
    records = connect(instance).tables()
    if as_json:
        print_json([{"name": r.name, "id": r.table_id, "online": r.online} for r in records])
        return
    for record in records:
        say(f"{record.name}{'' if record.online else '  (offline)'}")


@table.command()
@click.argument("name", shell_complete=complete_tables)
@instance_option
@json_option
def show(name: str, instance: str, as_json: bool) -> None:
    """Show the schema, properties and size of table NAME.

    \b
    Example:
        sleeper table show flights
    """
    opened = connect(instance).table(name)
    files = opened.report_files()
    explicit = {k: v for k, v in opened.properties.values.items() if k != SCHEMA}
    if as_json:
        print_json(
            {
                "name": opened.name,
                "id": opened.table_id,
                "online": opened.online,
                "schema": _schema_document(opened.schema),
                "properties": explicit,
                "files": files,
            }
        )
        return
    print_facts(
        [
            ("name", opened.name),
            ("id", opened.table_id),
            ("online", opened.online),
            ("rows", files.rows),
            ("files", files.files),
            ("leaf partitions", files.leaf_partitions),
            ("transaction", files.transaction),
        ]
    )
    _print_fields(opened.schema)
    if explicit:
        click.echo()
        print_facts(sorted(explicit.items()))


@table.command()
@click.argument("old", shell_complete=complete_tables)
@click.argument("new")
@instance_option
def rename(old: str, new: str, instance: str) -> None:
    """Rename table OLD to NEW. Its id and data do not change.

    \b
    Example:
        sleeper table rename flights flights-2013
    """
    connect(instance).table(old).rename(new)
    say(f"renamed table {old} to {new}")


@table.command()
@click.argument("name", shell_complete=complete_tables)
@force_option
@instance_option
def delete(name: str, force: bool, instance: str) -> None:
    """Delete table NAME with all its data.

    \b
    Example:
        sleeper table delete flights --force
    """
    opened = connect(instance)
    if not force:
        rows = counted(opened.table(name).report_files().rows, "row")
        ask(f"Delete table {name} with {rows}? This cannot be undone.")
    opened.delete_table(name)
    say(f"deleted table {name}")


@table.command()
@click.argument("name", shell_complete=complete_tables)
@click.option("--delete-partitions", is_flag=True, help="Make one partition again.")
@splits_file_option
@splits_base64_option
@force_option
@instance_option
def reinitialise(
    name: str,
    delete_partitions: bool,
    splits_file: Path | None,
    splits_base64: bool,
    force: bool,
    instance: str,
) -> None:
    """Remove all rows of table NAME; keep its partitions, or make new ones.

    \b
    Example:
        sleeper table reinitialise flights --splits-file splits.txt
    """
    opened = connect(instance).table(name)
    points = _split_points(splits_file, opened.schema, base64_encoded=splits_base64)
    if points is None and delete_partitions:
        points = []
    if not force:
        rows = counted(opened.report_files().rows, "row")
        ask(f"Empty table {name}, which has {rows}? This cannot be undone.")
    number = opened.reinitialise(points)
    say(f"removed all rows of table {name} (transaction {number})")


@table.command()
@click.argument("name", shell_complete=complete_tables)
@instance_option
def online(name: str, instance: str) -> None:
    """Turn background operations on table NAME on.

    \b
    Example:
        sleeper table online flights
    """
    connect(instance).table(name).set_online(online=True)
    say(f"table {name} is online")


@table.command()
@click.argument("name", shell_complete=complete_tables)
@instance_option
def offline(name: str, instance: str) -> None:
    """Turn background operations on table NAME off. Ingest and queries still work.

    \b
    Example:
        sleeper table offline flights
    """
    connect(instance).table(name).set_online(online=False)
    say(f"table {name} is offline")


@table.command("set")
@click.argument("name", shell_complete=complete_tables)
@click.argument(
    "settings", nargs=-1, required=True, metavar="K=V...", shell_complete=complete_table_settings
)
@instance_option
def set_properties(name: str, settings: tuple[str, ...], instance: str) -> None:
    """Set properties of table NAME; an empty value resets to the default.

    \b
    Example:
        sleeper table set flights sleeper.table.parquet.compression.codec=snappy
    """
    changes = {key: value or None for key, value in split_pairs(settings, "K=V")}
    connect(instance).table(name).set_properties(changes)
    for key, value in changes.items():
        say(f"{key} = {value}" if value is not None else f"{key} is back to its default")


@table.command()
@click.argument("name", shell_complete=complete_tables)
@click.option(
    "--add", multiple=True, metavar="FIELD:TYPE[:null]", help="A new field; :null if it may be so."
)
@click.option(
    "--default",
    "defaults",
    multiple=True,
    metavar="FIELD=VALUE",
    help="What rows of before have in a new field.",
)
@click.option("--drop", multiple=True, metavar="FIELD", help="A field to leave out.")
@click.option("--rename", "renames", multiple=True, metavar="OLD=NEW", help="A new name.")
@click.option("--widen", multiple=True, metavar="FIELD:TYPE", help="A wider type for a field.")
@click.option("--nullable", multiple=True, metavar="FIELD", help="A field that may be null.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="K=V",
    shell_complete=complete_table_settings,
    help="A table property to set in the same step; an empty value resets it.",
)
@force_option
@instance_option
@json_option
def alter(
    *,
    name: str,
    add: tuple[str, ...],
    defaults: tuple[str, ...],
    drop: tuple[str, ...],
    renames: tuple[str, ...],
    widen: tuple[str, ...],
    nullable: tuple[str, ...],
    settings: tuple[str, ...],
    force: bool,
    instance: str,
    as_json: bool,
) -> None:
    """Change value fields of table NAME. No data file is written.

    Rows of before have null, or the default, in a new field. Fields are named as
    they are before the change, and each option may be given several times. A table
    that an earlier version of Sleeper made needs `sleeper table upgrade` first.

    TYPE is as `sleeper table show` prints it, such as LongType, "DecimalType(10, 2)"
    or "ListType(StringType)". IntType can be widened to LongType, FloatType to
    DoubleType, and a DecimalType to one of more digits before its point.

    \b
    Examples:
        sleeper table alter flights --add carrier:StringType:null --rename dest=to
        sleeper table alter flights --add stops:IntType --default stops=0
        sleeper --reason "ticket 12" table alter flights --widen distance:LongType
    """
    opened = connect(instance).table(name)
    names, number = opened.schema.names, opened.schema.number
    new_names = dict(split_pairs(renames, "--rename", names))
    new_types = dict(_field_and_type(text, "--widen") for text in widen)
    fields = _new_fields(add, defaults)
    if drop and not force:
        ask(f"Drop {', '.join(drop)} of table {name}? Its values cannot be had back.")
    done = opened.alter(
        add=fields,
        drop=drop,
        rename=new_names,
        widen=new_types,
        nullable=nullable,
        properties={key: value or None for key, value in split_pairs(settings, "--set")},
    )
    if as_json:
        print_json(change_document(done))
        return
    changes = [
        *(f"dropped {each}" for each in drop),
        *(f"renamed {old} to {new}" for old, new in new_names.items()),
        *(f"widened {each} to {type_to_text(kind)}" for each, kind in new_types.items()),
        *(f"{each} may be null" for each in nullable),
        *(f"added {each.name}" for each in fields),
    ]
    if done.schema.number == number:
        say(f"table {name} has these columns already (transaction {done.transaction})")
    else:
        say(f"changed table {name} (transaction {done.transaction}): {', '.join(changes)}")
    _print_fields(done.schema)


def _new_fields(texts: Iterable[str], defaults: Iterable[str]) -> list[Field]:
    """Return the fields to add.

    Raises:
        click.BadParameter: one has no type, or a default is of none of them.
    """
    kinds = {}
    for text in texts:
        nullable = text.endswith(_NULL)
        name, kind = _field_and_type(text.removesuffix(_NULL), "--add")
        if name in kinds:
            raise click.BadParameter(f"{name!r} is there twice", param_hint="--add")
        kinds[name] = (kind, nullable)
    given = dict(split_pairs(defaults, "--default", kinds))
    unknown = [name for name in given if name not in kinds]
    if unknown:
        raise click.BadParameter(
            f"{unknown[0]!r} is not added: only rows that were written before a field need one",
            param_hint="--default",
        )
    return [Field(name, *about, default=given.get(name)) for name, about in kinds.items()]


_NULL = ":null"


def _field_and_type(text: str, option: str) -> tuple[str, FieldType]:
    """Split `FIELD:TYPE` at its last colon.

    Raises:
        click.BadParameter: there is none.
        SchemaInvalid: there is no such type.
    """
    name, colon, kind = text.rpartition(":")
    if not colon:
        raise click.BadParameter(
            f"{text!r} must be FIELD:TYPE, such as {text}:StringType", param_hint=option
        )
    try:
        return name, type_from_text(kind)
    except SchemaInvalid as error:
        if (ours := _named_by_arrow(kind)) is None:
            raise
        raise SchemaInvalid(
            f"{option} {text}: for {kind} of Arrow write {type_to_text(ours)}"
        ) from error


def _named_by_arrow(text: str) -> FieldType | None:
    """Return the type that has a name in Arrow, such as int64; None if none has."""
    try:
        return type_of_arrow(pa.type_for_alias(text), text)
    except (ValueError, SchemaInvalid):
        return None


@table.command("migrate-state")
@click.argument("name", shell_complete=complete_tables)
@click.option("--to", "state_store", required=True, metavar="CLASS", help="The state store.")
@instance_option
@json_option
def migrate_state(name: str, state_store: str, instance: str, as_json: bool) -> None:
    """Move the state of table NAME to another state store.

    CLASS is a value of the property sleeper.table.statestore.classname. The copy
    is compared before the table uses it. Queries go on meanwhile. If others
    commit all the time, nothing is changed: stop them, and run it again. If it
    was interrupted, run it again, which completes it.

    \b
    Example:
        sleeper table migrate-state flights --to S3StateStore
    """
    result = connect(instance).table(name).migrate_state(state_store)
    if as_json:
        print_json(result)
        return
    what = f"the state of table {name}"
    if result.was_interrupted:
        say(f"completed the interrupted move of {what} to {result.state_store}")
    elif not result.is_moved:
        say(f"{what} is in {result.state_store} already")
        return
    else:
        say(f"moved {what} from {result.moved_from} to {result.state_store}")
    say(f"its transactions go on after {result.transaction}; earlier versions cannot be read")


@table.command("estimate-splits")
@click.argument("files", nargs=-1, required=True)
@click.option("--schema", "schema_file", type=readable_file, required=True, help="Schema JSON.")
@click.option("--partitions", type=click.IntRange(2), required=True, help="Leaves wanted.")
@click.option(
    "--rows-per-file", type=click.IntRange(1), help="Read at most so many rows of each file."
)
@splits_base64_option
def estimate_splits(
    files: tuple[str, ...],
    schema_file: Path,
    partitions: int,
    rows_per_file: int | None,
    splits_base64: bool,
) -> None:
    """Print split points that divide the rows of FILES into even partitions.

    \b
    Example:
        sleeper table estimate-splits --schema schema.json --partitions 8 2013/ > splits.txt
    """
    schema = Schema.from_json(text_of(schema_file))
    points = estimate_split_points(
        [*files], schema, partitions, rows_per_file_max=rows_per_file, remote=input_store()
    )
    click.echo(write_split_points(points, schema, base64_encoded=splits_base64), nl=False)


@table.command("export-splits")
@click.argument("name", shell_complete=complete_tables)
@splits_base64_option
@instance_option
def export_splits(name: str, splits_base64: bool, instance: str) -> None:
    """Print the split points of table NAME, one a line.

    \b
    Example:
        sleeper table export-splits flights > splits.txt
    """
    opened = connect(instance).table(name)
    text = write_split_points(opened.split_points(), opened.schema, base64_encoded=splits_base64)
    click.echo(text, nl=False)


def _split_points(path: Path | None, schema: Schema, *, base64_encoded: bool) -> list[Any] | None:
    if path is None:
        return None
    return read_split_points(text_of(path), schema, base64_encoded=base64_encoded)


def _schema_document(schema: Schema) -> Any:
    return json.loads(schema.to_json())


@table.command()
@click.argument("name", shell_complete=complete_tables)
@instance_option
@json_option
def upgrade(name: str, instance: str, as_json: bool) -> None:
    """Give table NAME format 2: its log says who changed what, and why.

    New tables have it. One entry is committed, and no data file is changed. Versions of
    Sleeper that do not know format 2 refuse the table from then on.

    \b
    Example:
        sleeper table upgrade flights
    """
    _say_format(name, connect(instance).table(name).upgrade(), as_json)


@table.command()
@click.argument("name", shell_complete=complete_tables)
@instance_option
@json_option
def downgrade(name: str, instance: str, as_json: bool) -> None:
    """Give table NAME format 1 again, for versions of Sleeper before format 2.

    \b
    Example:
        sleeper table downgrade flights
    """
    _say_format(name, connect(instance).table(name).downgrade(), as_json)


def _say_format(name: str, change: FormatChange, as_json: bool) -> None:
    if as_json:
        print_json(change)
    elif change.before == change.format:
        say(f"table {name} has format {change.format} already")
    else:
        say(
            f"table {name} has format {change.format} from transaction {change.transaction} on "
            f"(it had {change.before})"
        )

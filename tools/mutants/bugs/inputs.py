"""Bugs in taking values in."""

from __future__ import annotations

from ..bug import Bug

VALUES = ("tests/stories/test_values_unchanged.py",)

TEXT_INPUTS = ("tests/stories/test_text_inputs.py",)

FRAMES = ("tests/unit/engine/inputs/test_pandas_frames.py",)

CASTS = ("tests/unit/columns/test_exact_cast.py",)

CSV = ("tests/stories/test_csv_options.py",)

DICTS = ("tests/unit/engine/inputs/test_sources.py", "-k", "TestDicts")

BUGS = (
    Bug(
        name="zones-of-times-of-day-dropped",
        breaks="The time zone of a time of day is dropped.",
        module="columns/type_traits.py",
        right="    if any(value is not None and value.tzinfo is not None for value in values):",
        wrong="    if any(value is not None and value.tzname() == want for value in values):",
        tests=("tests/stories/test_times_of_day.py",),
    ),
    Bug(
        name="list-views-cast-by-arrow",
        breaks="A large list view ends the process.",
        module="columns/exact_cast.py",
        right="(_is_list_view(have) or _hides_nulls(chunk))",
        wrong="_hides_nulls(chunk)",
        tests=CASTS,
    ),
    Bug(
        name="decimals-by-the-type",
        breaks="Integers of 64 bits are refused for a decimal of 5 digits, though each fits.",
        module="columns/exact_cast.py",
        right="    if is_.is_decimal(want) and is_.is_integer(have):\n",
        wrong="    if is_.is_decimal(want) and is_.is_uint64(have):\n",
        tests=CASTS,
    ),
    Bug(
        name="long-line-read-whole",
        breaks="A line that becomes large takes all memory before it is refused.",
        module="engine/inputs/text_files.py",
        right="if len(waiting) > _BLOCK_BYTES:",
        wrong="if len(waiting) > 1 << 40:",
        tests=("tests/hostile/test_files.py", "-k", "little_memory and value"),
    ),
    Bug(
        name="empty-columns-without-a-type",
        breaks="A column of CSV without values has no type, and no table is made.",
        module="engine/inputs/data_schema.py",
        right="if pa.types.is_null(each.type) else each",
        wrong="if pa.types.is_struct(each.type) else each",
        tests=("tests/stories/test_schema_from_data.py",),
    ),
    Bug(
        name="decimal-points-and-commas-mixed",
        breaks="1.5 in CSV with decimal commas is read as 1.5, though it may mean 15.",
        module="engine/inputs/text_values.py",
        right="""    found = pc.replace_substring(column, ".", "'")\n""",
        wrong="    found = column\n",
        tests=CSV,
    ),
    Bug(
        name="header-read-as-a-row",
        breaks="Names in a header are read as a row where columns are named anew.",
        module="engine/inputs/text_files.py",
        right="skip_rows_after_names=int(csv.header and csv.column_names is not None)",
        wrong="skip_rows_after_names=0",
        tests=CSV,
    ),
    Bug(
        name="extra-columns-end-jobs",
        breaks="A column of a job that the table does not have makes it a dead letter.",
        module="workers/kinds/ingest.py",
        right="            ignore_extra_columns=True,\n",
        wrong="",
        tests=("tests/stories/test_ingest_jobs.py", "-k", "left_out"),
    ),
    Bug(
        name="index-of-pandas-lost",
        breaks="An index with a name that the table does not have is dropped in silence.",
        module="engine/inputs/pandas_frames.py",
        right="    if strange and not ignore_extra_columns:",
        wrong="    if strange and len(strange) > 1:",
        tests=FRAMES,
    ),
    Bug(
        name="misspelt-fields-of-dicts-dropped",
        breaks="A misspelt field of dicts is dropped, and null stored in its place.",
        module="engine/inputs/dict_rows.py",
        right="            _refuse_misspelt(chunk, arrow_schema, origin)\n",
        wrong="",
        tests=DICTS,
    ),
    Bug(
        name="floats-of-text-made-infinite",
        breaks="A number of CSV that is too large for its type becomes infinite.",
        module="engine/inputs/text_values.py",
        right="    if pc.any(pc.or_(too_large, too_small)).as_py():\n",
        wrong="    if pc.any(too_small).as_py():\n",
        tests=TEXT_INPUTS,
    ),
    Bug(
        name="empty-texts-of-csv-are-null",
        breaks="An empty text in quotes is read as null.",
        module="engine/inputs/text_files.py",
        right="quoted_strings_can_be_null=False",
        wrong="quoted_strings_can_be_null=True",
        tests=TEXT_INPUTS,
    ),
    Bug(
        name="csv-cut-off-in-quotes",
        breaks="A file of CSV that was cut off in a quoted value is taken as whole.",
        module="engine/inputs/text_files.py",
        right="if file.quotes % 2:",
        wrong="if file.quotes % 2 > 1:",
        tests=TEXT_INPUTS,
    ),
    Bug(
        name="readers-of-text-not-awaited",
        breaks="A refused CSV file aborts the process, in which a thread of Arrow still has it.",
        module="engine/inputs/text_files.py",
        right="            opened.callback(source.wait_for_readers)\n",
        wrong="",
        tests=("tests/unit/engine/inputs/test_text_source.py",),
    ),
    Bug(
        name="escaped-quotes-end-texts",
        breaks="A map of JSON lines whose text has an escaped quote is refused.",
        module="engine/inputs/text_values.py",
        right="quotes[(quotes - before) % 2 == 1]",
        wrong="quotes[(quotes - before) % 2 < 2]",
        tests=("tests/unit/engine/inputs/test_json_maps.py",),
    ),
    Bug(
        name="first-row-lost",
        breaks="A bulk import opens an iterator twice, and its first row is gone.",
        module="tables/bulk_import.py",
        right="        return _import_locally(table, source, request, choice, extended)\n"
        "    groups",
        wrong="        return _import_locally(table, data, request, choice, extended)\n    groups",
        tests=("tests/stories/test_bulk_import_of_rows.py", "-k", "arrives"),
    ),
    Bug(
        name="any-function-runs",
        breaks="A table's function is imported wherever the table is read.",
        module="engine/processing/table_function.py",
        right="    if not function.is_allowed:\n",
        wrong="    if not function.module:\n",
        tests=("tests/stories/test_allowed_functions.py",),
    ),
    Bug(
        name="function-ends-reader",
        breaks="A function that calls sys.exit ends the process that reads.",
        module="engine/processing/table_function.py",
        right="_RAISED = (Exception, SystemExit)\n",
        wrong="_RAISED = (Exception,)\n",
        tests=("tests/stories/test_allowed_functions.py", "-k", "end"),
    ),
    Bug(
        name="none-asks-for-all",
        breaks="A key of None reads the whole table.",
        module="model/queries.py",
        right="        if value is None:\n",
        wrong="        if value is NotGiven:\n",
        tests=("tests/stories/test_wrong_arguments.py", "-k", "none"),
    ),
    Bug(
        name="aside-replaces",
        breaks="Rows set aside replace a file that came meanwhile.",
        module="engine/writing/user_file.py",
        right="                _link(self._hidden, self.path)\n",
        wrong="                self._hidden.replace(self.path)\n",
        tests=("tests/stories/test_rows_without_a_key.py",),
    ),
    Bug(
        name="aside-stays",
        breaks="Rows set aside stay though the commit has failed.",
        module="tables/ingest.py",
        right="        intake.abandon()\n        _delete(leaf_files)\n\n",
        wrong="        _delete(leaf_files)\n\n",
        tests=("tests/stories/test_rows_without_a_key.py",),
    ),
    Bug(
        name="exports-meet",
        breaks="Of two exports that begin at once, both write to the place.",
        module="engine/writing/export.py",
        right="        if not self.place.create(_UNFINISHED, self.export_id.encode()):\n",
        wrong="        if self.place.put(_UNFINISHED, self.export_id.encode()):\n",
        tests=("tests/unit/engine/writing/test_exported_parts.py",),
    ),
    Bug(
        name="misspelt-ignored",
        breaks="A column whose name has a letter too many is left out, and nulls are stored.",
        module="engine/arrow_schema.py",
        right="_NEAR = 0.8\n",
        wrong="_NEAR = 1.0\n",
        tests=("tests/stories/test_bad_input.py", "-k", "misspelt"),
    ),
    Bug(
        name="blank-id-counts",
        breaks="A blank job id is an id: the second job of that name adds nothing.",
        module="ports/ids.py",
        right="    return job_id if job_id is not None and job_id.strip() else None\n",
        wrong="    return job_id\n",
        tests=("tests/stories/test_exactly_once.py",),
    ),
    Bug(
        name="classes-unchecked",
        breaks="pyarrow cuts 1.5 down to 1, in rows and in keys.",
        module="columns/python_values.py",
        right="        if not traits.accepts(cls):\n",
        wrong="        if cls is object:\n",
        tests=VALUES,
    ),
    Bug(
        name="nanoseconds-dropped",
        breaks="A pandas timestamp loses its nanoseconds.",
        module="model/column_types.py",
        right='    if getattr(value, "nanosecond", 0):\n',
        wrong='    if getattr(value, "nanoseconds", 0):\n',
        tests=VALUES,
    ),
    Bug(
        name="zone-ignored",
        breaks="A clock time without a zone is taken for UTC.",
        module="columns/type_traits.py",
        right="        if None in offsets:\n",
        wrong="        if None in present:\n",
        tests=VALUES,
    ),
)

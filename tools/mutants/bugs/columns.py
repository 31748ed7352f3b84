"""Bugs in changes of columns."""

from __future__ import annotations

from ..bug import Bug

STORIES = ("tests/stories/test_changed_columns.py", "-k", "not agrees")
"""Examples of changes, without those that are drawn."""

PUBLISHED = ("tests/stories/test_published_columns.py", "-k", "not model")
"""What other engines read of such tables."""

BUGS = (
    Bug(
        name="dropped-column-comes-back",
        breaks="A column that was dropped and added again has its old values.",
        module="lookup/columns.py",
        right="        column = by_id.get(known.id) if has_ids else ",
        wrong="        column = footer.columns.get(field.name) if has_ids or True else ",
        tests=STORIES,
    ),
    Bug(
        name="default-left-out",
        breaks="Rows of before have null where a new column has a default.",
        module="lookup/columns.py",
        right="default=known.default\n",
        wrong="default=pa.scalar(None, field.type)\n",
        tests=STORIES,
    ),
    Bug(
        name="id-given-twice",
        breaks="A new column has the id, and so the values, of one that was dropped.",
        module="model/schema_changes.py",
        right="    last_id = before.last_id\n",
        wrong="    last_id = max(each.id or 0 for each in (*before.keys, *values))\n",
        tests=STORIES,
    ),
    Bug(
        name="old-version-with-new-columns",
        breaks="An old version is read with the columns of now.",
        module="tables/versions.py",
        right="        rows = answer(table.as_of(version), version)\n",
        wrong="        rows = answer(table, version)\n",
        tests=STORIES,
    ),
    Bug(
        name="order-of-columns-forgotten",
        breaks="An old version has its columns in another order than it had.",
        module="state/transactions/schemas.py",
        right="        if self.columns_before and before is not None:\n",
        wrong="        if not self.columns_before and before is not None:\n",
        tests=STORIES,
    ),
    Bug(
        name="schema-never-in-the-log",
        breaks="A change whose process died before its entry is never in the log.",
        module="state/transactions/schemas.py",
        right="schema.number in state.schemas or schema.number < state.schema_id",
        wrong="bool(state.schemas)",
        tests=STORIES,
    ),
    Bug(
        name="ids-left-out-of-files",
        breaks="A file that is written after a change is read by the names of before it.",
        module="engine/writing/data_file.py",
        right="stored_schema(schema, arrow_schema).with_metadata(FORMAT)\n",
        wrong="arrow_schema.with_metadata(FORMAT)\n",
        tests=STORIES,
    ),
    Bug(
        name="new-fields-of-a-table-keep-ids",
        breaks="A new table takes over the ids of another one, which its first files do not have.",
        module="model/schema.py",
        right="        if not self.last_id:\n            return self\n\n        def plain",
        wrong="        if self.last_id:\n            return self\n\n        def plain",
        tests=STORIES,
    ),
    Bug(
        name="changed-columns-read-by-spark",
        breaks="Spark's own reader finds columns by name in files that have others.",
        module="spark/frames.py",
        right=" and reference.schema_number == state.schema_id\n",
        wrong="\n",
        tests=("tests/spark/test_changed_columns.py",),
    ),
    Bug(
        name="files-of-other-columns-published",
        breaks="Other engines find columns by name in files that have others.",
        module="state/plans/publish.py",
        right="    is_changed = state.schema_id > 1\n",
        wrong="    is_changed = state.schema_id < 1\n",
        tests=PUBLISHED,
    ),
    Bug(
        name="published-with-the-columns-of-now",
        breaks="A version of before a change is published with the columns of after it.",
        module="tables/publish.py",
        right="        schema=state.schema_then(table.schema, table.store.known()),\n",
        wrong="        schema=table.schema,\n",
        tests=PUBLISHED,
    ),
    Bug(
        name="ids-of-iceberg-by-place",
        breaks="Iceberg finds a column by an id that files give to another.",
        module="engine/published/iceberg.py",
        right="    return schema.columns.index(name) + 1 if known is None else known\n",
        wrong="    return schema.columns.index(name) + 1\n",
        tests=PUBLISHED,
    ),
    Bug(
        name="null-lists-as-literals",
        breaks="A column of lists that was added cannot be merged.",
        module="engine/reading/session.py",
        right="            value = literal(None).cast(found.arrow_type)\n",
        wrong="            value = literal(found.default)\n",
        tests=STORIES,
    ),
    Bug(
        name="file-without-its-own-columns",
        breaks="A file that has lost a column is verified, and its rows have nulls.",
        module="engine/reading/check_file.py",
        right="if field.id in own and bound[field.name].default is not None:",
        wrong="if field.id in () and bound[field.name].default is not None:",
        tests=STORIES,
    ),
)

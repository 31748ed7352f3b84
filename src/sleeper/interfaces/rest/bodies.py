"""The JSON bodies of requests."""

from __future__ import annotations

import json
from collections.abc import Sized
from typing import Annotated, Any, Literal

from fastapi import Query as UrlQuery
from pydantic import BaseModel, ConfigDict, Field, model_validator

from sleeper.model.csv_options import CsvOptions
from sleeper.model.jobs.kinds import QueueName
from sleeper.model.schema import Field as SchemaField
from sleeper.model.schema import type_from_json

Values = dict[str, str | int | bool | None]

_MEMBERS_MAX = 10_000
"""Members of an object or a list. All that are wrong are collected, with a kilobyte for each: two
million numbers as columns took 2 GB and 10 s."""

_MANY = ("keys", "regions", "splitPoints")
"""Lists that may be longer, since nothing of them is checked one by one here."""

AnswerFormatField = Annotated[
    Literal["json", "jsonl", "arrow", "parquet", "csv"] | None,
    Field(description="Overrides the header `Accept`."),
]

UnchangedSinceParameter = Annotated[
    int | None,
    UrlQuery(
        ge=0,
        description="A transaction number, such as `Sleeper-Transaction` of an answer: the request "
        "changes nothing, and is answered by 409, if leaves that it is about have changed since.",
    ),
]


JobUnchangedSinceParameter = Annotated[
    int | None,
    UrlQuery(
        ge=0,
        description="A transaction number, such as `Sleeper-Transaction` of an answer: the job "
        "changes nothing, and has failed for good, if leaves that it is about have changed since.",
    ),
]


class Body(BaseModel):
    """The base of all bodies: unknown names and values of another type are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _has_few_members(cls, value: Any) -> Any:
        """Check how many members an object has, and the objects and lists in it.

        Raises:
            ValueError: there are very many.
        """
        if isinstance(value, dict):
            _check_count(value, "the body")
            for name, each in value.items():
                if isinstance(each, dict | list) and name not in _MANY:
                    _check_count(each, name)
        return value


def _check_count(members: Sized, name: str) -> None:
    if len(members) > _MEMBERS_MAX:
        raise ValueError(f"{name:.200} may have {_MEMBERS_MAX:,} members, not {len(members):,}")


class NewTable(Body):
    """A table to create, as upstream's API takes it."""

    properties: Annotated[
        dict[str, str],
        Field(
            description="Table properties by full name; `sleeper.table.name` is needed.",
            examples=[{"sleeper.table.name": "flights"}],
        ),
    ]
    schema_: Annotated[
        dict[str, Any],
        Field(
            alias="schema",
            description="The schema, as `schema.json` has it.",
            examples=[
                {
                    "rowKeyFields": [{"name": "tailnum", "type": "StringType"}],
                    "valueFields": [{"name": "dest", "type": "StringType"}],
                }
            ],
        ),
    ]
    split_points: Annotated[
        list[Any] | None,
        Field(
            alias="splitPoints",
            description="Values of the row key between leaf partitions, ascending.",
            examples=[["N3", "N6"]],
        ),
    ] = None


class ChangedProperties(Body):
    """Properties to set."""

    properties: Annotated[
        Values,
        Field(
            description="By full name; null takes a value away.",
            examples=[{"sleeper.table.parquet.compression.codec": "snappy"}],
        ),
    ]


class ChangedTable(Body):
    """What to change of a table."""

    name: Annotated[str | None, Field(description="The new name.")] = None
    online: Annotated[
        bool | None, Field(description="false so that background operations skip the table.")
    ] = None


class NewField(Body):
    """A column to add."""

    name: Annotated[str, Field(examples=["country"])]
    type: Annotated[Any, Field(description="As in a schema.", examples=["StringType"])]
    nullable: Annotated[
        bool, Field(description="true if it may be null; else it needs a default.")
    ] = False
    default: Annotated[
        str | bool | int | float | None,
        Field(
            description="Its value in the rows that are there; bytes in base64, times in ISO 8601.",
            examples=["CH"],
        ),
    ] = None


class ChangedColumns(Body):
    """What to change of the columns of a table. Names are those of before the change."""

    add: Annotated[list[NewField], Field(description="New columns, which come last.")] = []
    drop: Annotated[list[str], Field(description="Columns to leave out.")] = []
    rename: Annotated[
        dict[str, str],
        Field(description="New names, by the names of now.", examples=[{"dest": "destination"}]),
    ] = {}
    widen: Annotated[
        dict[str, Any],
        Field(description="New types, by name.", examples=[{"distance": "LongType"}]),
    ] = {}
    nullable: Annotated[list[str], Field(description="Columns that may be null from now on.")] = []
    properties: Annotated[
        Values, Field(description="Properties to set in the same step; null takes a value away.")
    ] = {}

    def arguments(self) -> dict[str, Any]:
        """Return the arguments for `Table.alter`.

        Raises:
            SchemaInvalid: there is no such type.
        """
        return {
            "add": [
                SchemaField(
                    each.name,
                    type_from_json(each.type),
                    each.nullable,
                    default=_default_text(each.default),
                )
                for each in self.add
            ],
            "drop": self.drop,
            "rename": self.rename,
            "widen": {name: type_from_json(kind) for name, kind in self.widen.items()},
            "nullable": self.nullable,
            "properties": self.properties,
        }


def _default_text(value: str | float | None) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


class RowsByKey(Body):
    """Rows by their keys: by one of key, keys, range and regions, and by a prefix."""

    key: Annotated[
        Any,
        Field(
            description="One row key: a value, a list of values for a composite key, or an object "
            "by field. A prefix of a composite key finds all rows that start with it.",
            examples=["N14228"],
        ),
    ] = None
    keys: Annotated[
        Any, Field(description="A list of complete row keys.", examples=[["N1", "N2"]])
    ] = None
    range: Annotated[
        Any,
        Field(
            description="An object of row key fields: `[min, max]` without the maximum, or "
            "`[min, minInclusive, max, maxInclusive]`. null is no limit.",
            examples=[{"tailnum": ["N1", "N2"]}],
        ),
    ] = None
    regions: Annotated[
        Any, Field(description="A list of such objects; a row may be in several.")
    ] = None
    prefix: Annotated[
        dict[str, Any] | None,
        Field(
            description="What values of row key fields begin with.", examples=[{"tailnum": "N1"}]
        ),
    ] = None


class Question(RowsByKey):
    """Which rows are asked for: by one of key, keys, range and regions; all rows without."""

    where: Annotated[
        str | None,
        Field(description="A condition on any fields, in SQL.", examples=["dest = 'IAH'"]),
    ] = None
    as_of: Annotated[
        int | str | None,
        Field(description="A transaction number, or a time in ISO 8601: rows as they were then."),
    ] = None


class Deletion(RowsByKey):
    """Which rows are deleted: by one of key, keys, range and regions, by a prefix, or where."""

    where: Annotated[
        str | None,
        Field(
            description="Instead of all these: a condition on any fields, in SQL.",
            examples=["fare < 0"],
        ),
    ] = None
    job_id: Annotated[
        str | None,
        Field(description="Names the job: one that was committed before deletes nothing."),
    ] = None


class PurgeBody(Body):
    """Which row keys are purged."""

    keys: Annotated[Any, Field(description="A list of whole row keys.", examples=[["N1", "N2"]])]


class Query(Question):
    """Rows to read."""

    columns: Annotated[
        list[str] | None, Field(description="The columns to return; all without it.")
    ] = None
    limit: Annotated[int | None, Field(description="At most so many rows.", examples=[100])] = None
    ordered: Annotated[
        bool, Field(description="false to read rows in any order, which is faster.")
    ] = True
    max_age: Annotated[
        float | None,
        Field(strict=False, description="Seconds: how old the answer may be; see docs/buckets.md."),
    ] = None
    format: AnswerFormatField = None


class CsvBody(Body):
    """How files of CSV are written."""

    separator: Annotated[str, Field(description="Between values.", examples=[";"])] = ","
    quote: Annotated[
        str | None, Field(description="Around values that need it; null for none.")
    ] = '"'
    encoding: Annotated[str, Field(examples=["latin-1"])] = "utf-8"
    header: Annotated[bool, Field(description="false without names in the first row.")] = True
    column_names: Annotated[
        list[str] | None, Field(description="The columns, instead of those in the header.")
    ] = None
    null_texts: Annotated[
        list[str], Field(description="What stands for null where it is not in quotes.")
    ] = [""]
    decimal_point: Annotated[str, Field(examples=[","])] = "."

    def options(self) -> CsvOptions:
        """Return them as options.

        Raises:
            BadRequest: a value is not allowed.
        """
        return CsvOptions(**self.model_dump())


FileNames = Annotated[
    list[str],
    Field(
        min_length=1,
        max_length=10_000,
        description="Files, folders of them, or patterns such as `s3://bucket/2013/*.csv`, in "
        "buckets; or of the input folder.",
        examples=[["s3://bucket/2013/01.parquet"]],
    ),
]


class SubmittedFilesBody(Body):
    """Files for the ingest batcher."""

    files: FileNames
    csv: Annotated[
        CsvBody | None,
        Field(description="With it all files are CSV, written so, whatever their names."),
    ] = None
    upsert: Annotated[
        bool,
        Field(description="true to replace rows of the table that have the same row keys."),
    ] = False


class IngestJobBody(SubmittedFilesBody):
    """Files to add by a worker."""

    job_id: Annotated[
        str | None,
        Field(description="Names the job: one that was committed before adds nothing."),
    ] = None
    kind: Literal["ingest", "bulk-import"] = "ingest"
    queue: Annotated[
        QueueName | None,
        Field(
            strict=False,
            description="Of a bulk import: the queue of the platform that runs it; else a worker "
            "does.",
            examples=["bulk-import-eks"],
        ),
    ] = None
    spark_conf: Annotated[
        dict[str, str] | None,
        Field(
            description="Of a bulk import: settings of Spark for this job; needs the role admin.",
            examples=[{"spark.executor.instances": "4"}],
        ),
    ] = None


class QueryJobBody(RowsByKey):
    """Rows that a worker is to write to a file: by their keys; all rows without."""

    keys: Annotated[
        list[Any] | None,
        Field(max_length=10_000, description="A list of complete row keys.", examples=[["N1"]]),
    ] = None
    regions: Annotated[
        list[Any] | None, Field(max_length=10_000, description="A list of such objects.")
    ] = None
    columns: Annotated[
        list[str] | None,
        Field(description="The value fields to return, beside the keys; all without it."),
    ] = None
    query_id: Annotated[
        str | None, Field(description="Names the query and its file; else one is made.")
    ] = None


class ExportJobBody(Body):
    """A table that a worker is to write to files."""

    export_id: Annotated[
        str | None, Field(description="Names the export and its folder; else one is made.")
    ] = None


class MessagesBody(Body):
    """Messages of a queue."""

    message_ids: Annotated[
        list[str] | None, Field(description="Those that are meant; all without it.")
    ] = None


class RetriedJobsBody(Body):
    """Jobs of submitted files that are to be sent again."""

    job_ids: Annotated[
        list[str] | None, Field(description="Those that are meant; all without it.")
    ] = None


class CompactBody(Body):
    """What to compact."""

    all_files: Annotated[
        bool, Field(description="true to merge all files of each leaf, whatever their sizes.")
    ] = False


class UnpublishBody(Body):
    """A format that a table is published in."""

    as_: Annotated[
        str, Field(alias="as", description="The format: delta or iceberg.", examples=["delta"])
    ]


class PublishBody(UnpublishBody):
    """How to publish a table."""

    make_clean: Annotated[
        bool,
        Field(
            alias="makeClean",
            description="true to compact first the files that stand in the way, and no others.",
        ),
    ] = False


class SqlBody(Body):
    """A statement in SQL that reads, or deletes rows."""

    statement: Annotated[
        str,
        Field(
            description="SELECT, WITH, VALUES, EXPLAIN or DESCRIBE, in the dialect of DataFusion; "
            "or DELETE FROM table WHERE condition.",
            examples=["SELECT dest, count(*) AS n FROM flights GROUP BY dest"],
        ),
    ]
    as_of: Annotated[
        int | str | None,
        Field(description="For one table: a transaction number, or a time in ISO 8601."),
    ] = None
    explain: Annotated[
        bool, Field(description="true for what the statement would do and read, as text.")
    ] = False
    format: AnswerFormatField = None


class DiffBody(Body):
    """Two versions of a table."""

    before: Annotated[
        int | str,
        Field(description="A transaction number, or a time in ISO 8601; 0 is the empty table."),
    ]
    after: Annotated[int | str | None, Field(description="The same; the newest without it.")] = None
    columns: Annotated[
        list[str] | None, Field(description="The columns to return; all without it.")
    ] = None
    format: AnswerFormatField = None

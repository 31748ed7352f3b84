"""Encodes transactions as JSON, for log entries and messages, and decodes them.

Names of types are upstream's (rule STS-12), and so are names of fields that upstream has.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from sleeper.model.authors import Author
from sleeper.model.schema import Schema
from sleeper.state.table_state import CommittedJob, Transaction
from sleeper.state.transactions.deletes import DeleteKeys, DeleteRows
from sleeper.state.transactions.files import (
    AddFiles,
    Claim,
    ClaimFiles,
    ClearFiles,
    DeleteFiles,
    ReferencePush,
    ReleaseClaims,
    RenewClaims,
    ReplaceFiles,
    SplitFileReferences,
    SweepOrphans,
    UpsertFiles,
)
from sleeper.state.transactions.formats import SetFormat
from sleeper.state.transactions.moves import MoveState
from sleeper.state.transactions.partitions import (
    ExtendPartitionTree,
    InitialisePartitions,
    MergePartitions,
    SplitPartition,
)
from sleeper.state.transactions.schemas import SetSchema
from sleeper.state.value_json import (
    Document,
    checked_data_file,
    data_files_from_json,
    move_from_json,
    move_to_json,
    owner_from_json,
    owner_to_json,
    partitions_from_json,
    partitions_to_json,
    read,
    read_list,
    read_optional_text,
    reference_from_json,
    reference_to_json,
    references_from_json,
    references_to_json,
    regions_from_json,
    regions_to_json,
    time_from_json,
    time_to_json,
)


def is_known_type(name: str) -> bool:
    """Return whether this version knows transactions of a type."""
    return name in _TYPES


def transaction_to_json(transaction: Transaction, schema: Schema) -> dict[str, Any]:
    """Return one transaction as a JSON object with its type."""
    for name, (kind, to_json, _) in _TYPES.items():
        if type(transaction) is kind:
            return {"type": name, **_author_to_json(transaction), **to_json(transaction, schema)}
    raise TypeError(f"{type(transaction).__name__} is not a transaction of the log")


def transaction_from_json(document: Document, schema: Schema) -> Transaction:
    """Decode a transaction that `transaction_to_json` returned.

    Raises:
        ValueError, TypeError, LookupError: it is not a transaction.
    """
    _, _, from_json = _TYPES[read(document, "type", str)]
    transaction: Transaction = from_json(document, schema)
    author = author_from_json(document)
    return transaction if author is None else transaction.by(author)


def _author_to_json(transaction: Transaction) -> dict[str, Any]:
    author = transaction.author
    texts = {} if author is None else {"by": author.by, "reason": author.reason}
    return {name: text for name, text in texts.items() if text is not None}


def author_from_json(document: Document) -> Author | None:
    """Return who committed a transaction, and why; None if it does not say."""
    by, reason = (read_optional_text(document, name) for name in ("by", "reason"))
    return None if by is None and reason is None else Author(by=by, reason=reason)


def _add_to_json(transaction: AddFiles, schema: Schema) -> dict[str, Any]:
    document: dict[str, Any] = {"references": references_to_json(transaction.references)}
    if transaction.unreferenced:
        document["unreferencedFiles"] = list(transaction.unreferenced)
    if transaction.written_since is not None:
        document["writtenSince"] = time_to_json(transaction.written_since)
    if transaction.job:
        document["job"] = {
            "jobId": transaction.job.job_id,
            "keepUntil": time_to_json(transaction.job.keep_until),
            "rowsRead": transaction.job.rows_read,
            "rowsWritten": transaction.job.rows_written,
        }
    return document


def _add_from_json(document: Document, schema: Schema) -> AddFiles:
    job = document.get("job")
    since = read_optional_text(document, "writtenSince")
    return AddFiles(
        references=references_from_json(document, "references"),
        unreferenced=data_files_from_json(document, "unreferencedFiles", optional=True),
        job=None if job is None else _job_from_json(job),
        written_since=None if since is None else time_from_json(since),
    )


def _upsert_to_json(transaction: UpsertFiles, schema: Schema) -> dict[str, Any]:
    document = _add_to_json(transaction, schema)
    if transaction.without_old_rows:
        document["filesWithoutOldRows"] = sorted(transaction.without_old_rows)
    return document


def _upsert_from_json(document: Document, schema: Schema) -> UpsertFiles:
    added = _add_from_json(document, schema)
    return UpsertFiles(
        references=added.references,
        unreferenced=added.unreferenced,
        job=added.job,
        written_since=added.written_since,
        without_old_rows=frozenset(
            data_files_from_json(document, "filesWithoutOldRows", optional=True)
        ),
    )


def _keys_to_json(transaction: DeleteKeys, schema: Schema) -> dict[str, Any]:
    document: dict[str, Any] = {"references": references_to_json(transaction.references)}
    if transaction.written_since is not None:
        document["writtenSince"] = time_to_json(transaction.written_since)
    return document


def _keys_from_json(document: Document, schema: Schema) -> DeleteKeys:
    since = read_optional_text(document, "writtenSince")
    return DeleteKeys(
        references=references_from_json(document, "references"),
        written_since=None if since is None else time_from_json(since),
    )


def _job_from_json(document: Document) -> CommittedJob:
    return CommittedJob(
        job_id=read(document, "jobId", str),
        keep_until=time_from_json(read(document, "keepUntil", str)),
        rows_read=read(document, "rowsRead", int),
        rows_written=read(document, "rowsWritten", int),
    )


def _claims_to_json(claims: tuple[Claim, ...]) -> dict[str, Any]:
    requests = [
        {"jobId": a.job_id, "partitionId": a.partition_id, "filenames": list(a.filenames)}
        for a in claims
    ]
    return {"requests": requests}


def _claim_to_json(transaction: ClaimFiles, schema: Schema) -> dict[str, Any]:
    document = _claims_to_json(transaction.assignments)
    if transaction.owner is not None:
        document["owner"] = owner_to_json(transaction.owner)
    return document


def _claims_from_json(document: Document) -> tuple[Claim, ...]:
    return tuple(
        Claim(
            job_id=read(request, "jobId", str),
            partition_id=read(request, "partitionId", str),
            filenames=data_files_from_json(request, "filenames"),
        )
        for request in read_list(document, "requests", dict)
    )


def _replace_to_json(transaction: ReplaceFiles, schema: Schema) -> dict[str, Any]:
    document: dict[str, Any] = {
        "jobId": transaction.job_id,
        "inputFiles": list(transaction.inputs),
        "newReference": reference_to_json(transaction.output),
    }
    if transaction.task_id is not None:
        document |= {"taskId": transaction.task_id, "jobRunId": transaction.run_id}
    if transaction.rows_removed is not None:
        document["rowsRemoved"] = transaction.rows_removed
    return document


def _replace_from_json(document: Document, schema: Schema) -> ReplaceFiles:
    return ReplaceFiles(
        job_id=read(document, "jobId", str),
        inputs=data_files_from_json(document, "inputFiles"),
        output=reference_from_json(read(document, "newReference", dict)),
        task_id=read_optional_text(document, "taskId"),
        run_id=read_optional_text(document, "jobRunId"),
        rows_removed=_optional_count(document, "rowsRemoved"),
    )


def _clear_to_json(transaction: ClearFiles, schema: Schema) -> dict[str, Any]:
    counts = {"rowsRemoved": transaction.rows_removed, "filesRemoved": transaction.files_removed}
    return {name: count for name, count in counts.items() if count is not None}


def _clear_from_json(document: Document, schema: Schema) -> ClearFiles:
    return ClearFiles(
        rows_removed=_optional_count(document, "rowsRemoved"),
        files_removed=_optional_count(document, "filesRemoved"),
    )


def _optional_count(document: Document, name: str) -> int | None:
    return read(document, name, int) if name in document else None


def _push_to_json(transaction: SplitFileReferences, schema: Schema) -> dict[str, Any]:
    requests = [
        {
            "filename": push.filename,
            "partitionId": push.partition_id,
            "newReferences": references_to_json(push.into),
        }
        for push in transaction.pushes
    ]
    return {"requests": requests}


def _push_from_json(document: Document, schema: Schema) -> SplitFileReferences:
    return SplitFileReferences(
        pushes=tuple(
            ReferencePush(
                filename=checked_data_file(read(request, "filename", str)),
                partition_id=read(request, "partitionId", str),
                into=references_from_json(request, "newReferences"),
            )
            for request in read_list(document, "requests", dict)
        )
    )


def _initialise_to_json(transaction: InitialisePartitions, schema: Schema) -> dict[str, Any]:
    return {"partitions": partitions_to_json(transaction.partitions, schema)}


def _initialise_from_json(document: Document, schema: Schema) -> InitialisePartitions:
    return InitialisePartitions(partitions=partitions_from_json(document, "partitions", schema))


def _split_to_json(transaction: SplitPartition, schema: Schema) -> dict[str, Any]:
    partitions = (transaction.parent, *transaction.children)
    return {"partitions": partitions_to_json(partitions, schema)}


def _split_from_json(document: Document, schema: Schema) -> SplitPartition:
    parent, lower, upper = partitions_from_json(document, "partitions", schema)
    return SplitPartition(parent=parent, children=(lower, upper))


def _extend_to_json(transaction: ExtendPartitionTree, schema: Schema) -> dict[str, Any]:
    return {
        "updatedPartitions": partitions_to_json(transaction.updated, schema),
        "newPartitions": partitions_to_json(transaction.new, schema),
    }


def _extend_from_json(document: Document, schema: Schema) -> ExtendPartitionTree:
    return ExtendPartitionTree(
        updated=partitions_from_json(document, "updatedPartitions", schema),
        new=partitions_from_json(document, "newPartitions", schema),
    )


def _delete_rows_to_json(transaction: DeleteRows, schema: Schema) -> dict[str, Any]:
    return {"regions": regions_to_json(transaction.regions, schema)}


def _delete_rows_from_json(document: Document, schema: Schema) -> DeleteRows:
    return DeleteRows(regions=regions_from_json(document, "regions", schema))


_TYPES: dict[str, tuple[type, Callable[..., dict[str, Any]], Callable[..., Any]]] = {
    "ADD_FILES": (AddFiles, _add_to_json, _add_from_json),
    "DELETE_KEYS": (DeleteKeys, _keys_to_json, _keys_from_json),
    "UPSERT_FILES": (UpsertFiles, _upsert_to_json, _upsert_from_json),
    "ASSIGN_JOB_IDS": (
        ClaimFiles,
        _claim_to_json,
        lambda document, _: ClaimFiles(
            assignments=_claims_from_json(document),
            owner=owner_from_json(document["owner"]) if "owner" in document else None,
        ),
    ),
    "CLEAR_FILES": (ClearFiles, _clear_to_json, _clear_from_json),
    "DELETE_FILES": (
        DeleteFiles,
        lambda transaction, _: {"filenames": list(transaction.filenames)},
        lambda document, _: DeleteFiles(filenames=data_files_from_json(document, "filenames")),
    ),
    "DELETE_ROWS": (DeleteRows, _delete_rows_to_json, _delete_rows_from_json),
    "INITIALISE_PARTITIONS": (InitialisePartitions, _initialise_to_json, _initialise_from_json),
    "MERGE_PARTITIONS": (
        MergePartitions,
        lambda transaction, _: {
            "partitionId": transaction.parent_id,
            "childIds": list(transaction.child_ids),
        },
        lambda document, _: MergePartitions(
            parent_id=read(document, "partitionId", str),
            child_ids=tuple(read_list(document, "childIds", str)),
        ),
    ),
    "MOVE_STATE": (
        MoveState,
        lambda transaction, _: move_to_json(transaction.move),
        lambda document, _: MoveState(move=move_from_json(document)),
    ),
    "RELEASE_JOB_IDS": (
        ReleaseClaims,
        lambda transaction, _: _claims_to_json(transaction.claims),
        lambda document, _: ReleaseClaims(claims=_claims_from_json(document)),
    ),
    "RENEW_JOB_IDS": (
        RenewClaims,
        lambda transaction, _: {"jobIds": list(transaction.job_ids)},
        lambda document, _: RenewClaims(job_ids=tuple(read_list(document, "jobIds", str))),
    ),
    "REPLACE_FILE_REFERENCES": (ReplaceFiles, _replace_to_json, _replace_from_json),
    "SET_FORMAT": (
        SetFormat,
        lambda transaction, _: {"tableFormat": transaction.format},
        lambda document, _: SetFormat(format=read(document, "tableFormat", int)),
    ),
    "SET_SCHEMA": (
        SetSchema,
        lambda transaction, _: {
            "schemaId": transaction.schema_id,
            "schema": json.loads(transaction.schema.to_json()),
            **(
                {"columnsBefore": list(transaction.columns_before)}
                if transaction.columns_before
                else {}
            ),
        },
        lambda document, _: SetSchema(
            schema_id=read(document, "schemaId", int),
            schema=Schema.from_json(read(document, "schema", dict)),
            columns_before=tuple(read_list(document, "columnsBefore", str))
            if "columnsBefore" in document
            else (),
        ),
    ),
    "SPLIT_FILE_REFERENCES": (SplitFileReferences, _push_to_json, _push_from_json),
    "SPLIT_PARTITION": (SplitPartition, _split_to_json, _split_from_json),
    "SWEEP_ORPHANS": (
        SweepOrphans,
        lambda transaction, _: {"before": time_to_json(transaction.before)},
        lambda document, _: SweepOrphans(before=time_from_json(read(document, "before", str))),
    ),
    "EXTEND_PARTITION_TREE": (ExtendPartitionTree, _extend_to_json, _extend_from_json),
}

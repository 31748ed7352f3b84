"""All tables in DynamoDB that an instance in AWS can have."""

from __future__ import annotations

from typing import Final

from sleeper.model.jobs.events import JobKind
from sleeper.storage.aws.deployment.table_index import BY_ID, BY_NAME
from sleeper.storage.aws.dynamo_making import DynamoTable
from sleeper.storage.aws.jobs.dynamo_job_tables import (
    BATCHER_JOBS,
    SUBMITTED_FILES,
    job_lookup,
    job_updates,
    task_status,
)
from sleeper.storage.aws.jobs.dynamo_query_table import QUERY_STATES
from sleeper.storage.aws.state.dynamo_log import LOG
from sleeper.storage.aws.state.revision_items import REVISIONS
from sleeper.storage.aws.state.state_items import FILES, PARTITIONS, REFERENCES

INDEX_TABLES: Final = (BY_ID, BY_NAME)
"""The records of tables."""

JOB_TABLES: Final = (
    QUERY_STATES,
    SUBMITTED_FILES,
    BATCHER_JOBS,
    *(table(kind) for kind in JobKind for table in (job_updates, job_lookup, task_status)),
)
"""Events of jobs and tasks, and files that wait for the batcher."""

INIT_TABLES: Final = (*INDEX_TABLES, *JOB_TABLES)
"""Those that `sleeper init` makes."""

STATE_TABLES: Final[tuple[DynamoTable, ...]] = (LOG, REFERENCES, FILES, PARTITIONS)
"""Logs and states of tables, which are made when a table first needs them."""

REVISION_TABLES: Final = (REVISIONS,)
"""The newest revisions of states, wherever those are; made when a table first needs it."""

ALL_TABLES: Final = (*INIT_TABLES, *STATE_TABLES, *REVISION_TABLES)

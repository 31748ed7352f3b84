"""Bugs in how events of jobs and submitted files are kept in DynamoDB."""

from __future__ import annotations

from ..bug import Bug

CONTRACTS = ("tests/contracts/jobs/test_dynamo_jobs.py",)
TROUBLE = ("tests/contracts/jobs/test_dynamo_trouble.py",)
QUERIES = ("tests/contracts/jobs/test_dynamo_queries.py",)

BUGS = (
    Bug(
        name="unfinished-job-sent",
        breaks="A job is sent while files are still put into it.",
        module="storage/aws/jobs/dynamo_batcher_store.py",
        right='"Created") > since:',
        wrong='"Created") > 2 * since:',
        tests=TROUBLE,
    ),
    Bug(
        name="files-into-a-sent-job",
        breaks="Files enter a job that another process has closed.",
        module="storage/aws/jobs/dynamo_batcher_store.py",
        right="self._tables.write_together(some, guard=check) is None",
        wrong="self._tables.write_together(some) is None",
        tests=TROUBLE,
    ),
    Bug(
        name="repeated-submission-pending",
        breaks="A submission that is delivered again is ingested twice.",
        module="storage/aws/jobs/dynamo_batcher_store.py",
        right='"Key": _submission_key(file),',
        wrong='"Key": _job_key(file.path),',
        tests=CONTRACTS,
    ),
    Bug(
        name="conflict-without-a-pause",
        breaks="Writers that meet send again at once, under another token.",
        module="storage/aws/dynamo_tables.py",
        right="            if refused:\n",
        wrong="            if not refused:\n",
        tests=TROUBLE,
    ),
    Bug(
        name="moved-jobs-not-listed",
        breaks="A job that moves up while jobs are listed is left out.",
        module="storage/aws/jobs/dynamo_tracker.py",
        right="if _fingerprint(entry) not in seen:",
        wrong="if _fingerprint(entry) in seen:",
        tests=TROUBLE,
    ),
    Bug(
        name="retry-told-as-failed",
        breaks="A client of upstream gives up a query that is tried again.",
        module="storage/aws/jobs/dynamo_query_table.py",
        right="case JobEventType.FAILED if event.is_final:",
        wrong="case JobEventType.FAILED:",
        tests=QUERIES,
    ),
    Bug(
        name="completed-query-goes-back",
        breaks="A client waits for a query whose rows are there, as its message came twice.",
        module="storage/aws/jobs/dynamo_query_table.py",
        right="    elif state is not QueryState.COMPLETED:",
        wrong="    elif state is QueryState.QUEUED:",
        tests=QUERIES,
    ),
    Bug(
        name="late-sender-puts-query-back",
        breaks="A sender that is slow tells that a query waits which a worker has begun.",
        module="storage/aws/jobs/dynamo_query_table.py",
        right='        put["ConditionExpression"] = _NEW\n',
        wrong='        put["ConditionExpression"] = _NOT_COMPLETED\n',
        tests=QUERIES,
    ),
)

"""Bugs in how events of jobs and submitted files are kept in DynamoDB."""

from __future__ import annotations

from ..bug import Bug

CONTRACTS = ("tests/contracts/jobs/test_dynamo_jobs.py",)
TROUBLE = ("tests/contracts/jobs/test_dynamo_trouble.py",)
QUERIES = ("tests/contracts/jobs/test_dynamo_queries.py",)
LOG = ("tests/contracts/state/test_dynamo_log.py",)
LOG_TROUBLE = ("tests/contracts/state/test_dynamo_log_trouble.py",)
STORY = ("tests/stories/test_a_table_with_its_log_in_dynamodb.py",)

BUGS = (
    Bug(
        name="expiry-by-the-workers-clock",
        breaks="A worker whose clock is years behind writes events that expire at once.",
        module="storage/aws/jobs/dynamo_tracker.py",
        right="        return expires + max(timedelta(0), self._time() - self._now())",
        wrong="        return expires + min(timedelta(0), self._time() - self._now())",
        tests=TROUBLE,
    ),
    Bug(
        name="hidden-by-the-readers-clock",
        breaks="A reader whose clock is years ahead sees no event.",
        module="storage/aws/jobs/dynamo_tracker.py",
        right="        return self._tables.last_answer or self._now()",
        wrong="        return max(self._tables.last_answer or self._now(), self._now())",
        tests=TROUBLE,
    ),
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
        module="storage/aws/jobs/dynamo_tracker.py",
        right="case JobEventType.FAILED if event.is_final:",
        wrong="case JobEventType.FAILED:",
        tests=QUERIES,
    ),
    Bug(
        name="completed-query-goes-back",
        breaks="A client waits for a query whose rows are there, as its message came twice.",
        module="storage/aws/jobs/dynamo_tracker.py",
        right="    elif state is not QueryState.COMPLETED:",
        wrong="    elif state is QueryState.QUEUED:",
        tests=QUERIES,
    ),
    Bug(
        name="late-sender-puts-query-back",
        breaks="A sender that is slow tells that a query waits which a worker has begun.",
        module="storage/aws/jobs/dynamo_tracker.py",
        right='        put["ConditionExpression"] = _NEW\n',
        wrong='        put["ConditionExpression"] = _NOT_COMPLETED\n',
        tests=QUERIES,
    ),
    Bug(
        name="dynamo-entry-overwritten",
        breaks="Two writers get one number of a log in DynamoDB, and the second one's entry stays.",
        module="storage/aws/dynamo_tables.py",
        right='"ConditionExpression": f"attribute_not_exists({table.key[0][0]})",',
        wrong='"ConditionExpression": "attribute_not_exists(NO_SUCH)",',
        tests=LOG,
    ),
    Bug(
        name="dynamo-own-entry-lost",
        breaks="A writer that lost the reply takes its own entry in DynamoDB for another's.",
        module="storage/aws/state/dynamo_log.py",
        right="if found and self._body(number, found) == body:",
        wrong="if not found:",
        tests=LOG,
    ),
    Bug(
        name="dynamo-named-body-discarded",
        breaks="A writer that lost the reply deletes the body that its entry names.",
        module="storage/aws/state/dynamo_log.py",
        right="if found is None or (key is not None and _body_key(found) == key):",
        wrong="if found is None:",
        tests=LOG_TROUBLE,
    ),
    Bug(
        name="dynamo-gap-read-over",
        breaks="Entries behind a gap of a log in DynamoDB are replayed.",
        module="storage/aws/state/dynamo_log.py",
        right="if following == number + 1 else None",
        wrong="if following > number else None",
        tests=LOG,
    ),
    Bug(
        name="dynamo-body-of-a-writer-swept",
        breaks="A sweep deletes the body of a writer that has not put its entry yet.",
        module="storage/aws/state/dynamo_log.py",
        right="return item is not None and _body_key(item) != key",
        wrong="return item is None or _body_key(item) != key",
        tests=LOG,
    ),
    Bug(
        name="dynamo-log-begun-elsewhere",
        breaks="A commit makes a table in DynamoDB that was deleted, and goes on in it.",
        module="storage/aws/state/dynamo_log.py",
        right="make=self.is_new and number == self.first",
        wrong="make=True",
        tests=LOG_TROUBLE,
    ),
    Bug(
        name="dynamo-missing-log-is-empty",
        breaks="A table whose log is in another region seems to be empty.",
        module="storage/aws/state/dynamo_log.py",
        right="if number < self.first and not begins:",
        wrong="if number < self.first and begins and not self.is_new:",
        tests=LOG,
    ),
    Bug(
        name="dynamo-stored-too-early",
        breaks="An entry in DynamoDB counts as stored up to a millisecond before it was.",
        module="storage/aws/state/dynamo_log.py",
        right="str(-((_EPOCH - time) // _MILLISECOND))",
        wrong="str((time - _EPOCH) // _MILLISECOND)",
        tests=LOG,
    ),
    Bug(
        name="dynamo-eventual-reads",
        breaks="A commit may miss entries that were acknowledged.",
        module="storage/aws/dynamo_tables.py",
        right='ConsistentRead="IndexName" not in options',
        wrong="ConsistentRead=False",
        tests=LOG,
    ),
    Bug(
        name="state-outside-the-folder-stays",
        breaks="The items of a deleted table stay in DynamoDB.",
        module="tables/state_stores.py",
        right="    store_of(record, context, is_new=True).delete()\n",
        wrong="    store_of(record, context, is_new=True)\n",
        tests=STORY,
    ),
)

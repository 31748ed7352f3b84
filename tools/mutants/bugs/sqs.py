"""Bugs in queues as SQS keeps them."""

from __future__ import annotations

from ..bug import Bug

TROUBLE = ("tests/unit/storage/test_sqs_trouble.py",)
_QUEUE = "storage/aws/jobs/sqs_queue.py"
_CALLS = "storage/aws/jobs/sqs_calls.py"
_MESSAGES = "storage/aws/jobs/sqs_messages.py"

BUGS = (
    Bug(
        name="part-of-a-batch-lost",
        breaks="Messages of a batch that SQS did not store are taken for sent.",
        module=_CALLS,
        right="        return final | {key: codes[key] for key in entries}",
        wrong="        return final",
        tests=TROUBLE,
    ),
    Bug(
        name="buried-letter-has-a-new-id",
        breaks="A dead letter in SQS has another id than its message.",
        module=_MESSAGES,
        right='        message_id=noted.get(_ID) or received["MessageId"],\n'
        '        body=received["Body"],\n'
        '        group=attributes.get("MessageGroupId"),',
        wrong='        message_id=received["MessageId"],\n'
        '        body=received["Body"],\n'
        '        group=attributes.get("MessageGroupId"),',
        tests=TROUBLE,
    ),
    Bug(
        name="seconds-rounded-down",
        breaks="A message in SQS is visible before its time.",
        module=_MESSAGES,
        right="    return ceil(seconds)",
        wrong="    return int(seconds)",
        tests=TROUBLE,
    ),
    Bug(
        name="group-twice-in-a-batch",
        breaks="A retry changes the order of a group in SQS.",
        module=_MESSAGES,
        right=" or group in groups:",
        wrong=":",
        tests=TROUBLE,
    ),
    Bug(
        name="queue-of-another-instance-used",
        breaks="Two instances with one id take each other's jobs from SQS.",
        module=_CALLS,
        right="        if owner != self._owner:",
        wrong="        if owner is None:",
        tests=TROUBLE,
    ),
    Bug(
        name="copy-sent-for-a-stale-receipt",
        breaks="A message that another has received since is made a dead letter too.",
        module=_QUEUE,
        right="        return delivery if self._hide(receipt, _HELD_S) else None",
        wrong="        return delivery",
        tests=TROUBLE,
    ),
    Bug(
        name="rows-sent-twice-after-failure",
        breaks="A query that failed after some messages is tried again, and sends them once more.",
        module="jobs/job_results.py",
        right="            if not sent:\n                raise\n",
        wrong="            if sent:\n                raise\n",
        tests=("tests/unit/jobs/test_job_results.py",),
    ),
    Bug(
        name="bucket-and-key-are-a-local-path",
        breaks="Files of upstream's clients are looked for below the worker's folder.",
        module="jobs/instance_jobs.py",
        right='names_buckets=place.jobs_url(url) == "sqs",',
        wrong="names_buckets=False,",
        tests=("tests/stories/test_jobs_in_aws.py", "-k", "bucket_and_a_key"),
    ),
    Bug(
        name="rows-sent-at-each-delivery",
        breaks="A query whose message was not deleted in time sends its rows twice.",
        module="workers/kinds/query.py",
        right="is_delivered_again=message.receives > 1,",
        wrong="is_delivered_again=message.receives > 2,",
        tests=("tests/stories/test_documents_json_in_aws.py", "-k", "delivered_again"),
    ),
    Bug(
        name="full-part-forgets-comma",
        breaks="A message with as many rows as fit is one byte too long.",
        module="engine/writing/json_parts.py",
        right="start + bytes_max + 1, side",
        wrong="start + bytes_max + 2, side",
        tests=("tests/unit/engine/writing/test_json_parts.py",),
    ),
)

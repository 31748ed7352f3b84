"""Bugs in what runs an instance in AWS without a server."""

from __future__ import annotations

from ..bug import Bug

_QUEUE = "storage/aws/jobs/delivered_queue.py"
_DELIVERED = ("tests/contracts/jobs/test_delivered_messages.py",)
_SCHEDULED = "tests/unit/workers"
_CALLED = ("tests/aws/lambdas/test_called_functions.py",)

BUGS = (
    Bug(
        name="too-long-for-ever",
        breaks="A job that takes longer than a function may run is delivered for ever.",
        module=_QUEUE,
        right="        if counted or self._is_over():\n",
        wrong="        if counted:\n",
        tests=_DELIVERED,
    ),
    Bug(
        name="not-begun-counted",
        breaks="Messages that no call had time for become dead letters.",
        module=_QUEUE,
        right="self._queue.release(receipt, delay_s, counted=False)\n",
        wrong="self._queue.release(receipt, delay_s)\n",
        tests=_DELIVERED,
    ),
    Bug(
        name="begun-without-time",
        breaks="A message is begun when the time of the call is almost over.",
        module=_QUEUE,
        right="        if not self._is_first and not self._has_time():\n",
        wrong="        if False:\n",
        tests=_DELIVERED,
    ),
    Bug(
        name="order-of-operations-lost",
        breaks="After an operation on a table failed, a later one of the table runs before it.",
        module="interfaces/lambdas/messages.py",
        right="            groups.add(message.group)\n",
        wrong="",
        tests=("tests/aws/lambdas/test_scheduled.py",),
    ),
    Bug(
        name="tasks-while-starting",
        breaks="Each minute in which a task starts, another one is started for its message.",
        module="workers/scheduled_starts.py",
        right="idle=running.starting\n",
        wrong="idle=0\n",
        tests=(_SCHEDULED + "/test_scheduled_starts.py",),
    ),
    Bug(
        name="commits-not-seen",
        breaks="A table with new rows is left alone until the next day.",
        module="workers/scheduled_operations.py",
        right='(before.get("number"), before.get("properties")) != (number, properties)\n',
        wrong='before.get("properties") != properties\n',
        tests=(_SCHEDULED + "/test_scheduled_operations.py",),
    ),
    Bug(
        name="refused-messages-noted",
        breaks="A table whose message SQS refused is left alone as if it had been sent.",
        module="workers/scheduled_operations.py",
        right="    tables.note(sent)\n",
        wrong="    tables.note(due)\n",
        tests=(_SCHEDULED + "/test_scheduled_operations.py",),
    ),
    Bug(
        name="moved-state-unchanged",
        breaks="A table whose state was moved counts as unchanged, whatever is committed.",
        module="tables/state_stores.py",
        right="            seen = None  # it is a number of the store",
        wrong="            pass  # it is a number of the store",
        tests=("tests/contracts/state/test_last_numbers.py",),
    ),
    Bug(
        name="one-page-of-tasks",
        breaks="Of more than a hundred tasks the others are not counted, and too many are started.",
        module="storage/aws/ecs_tasks.py",
        right='            if not page.get("nextToken"):\n',
        wrong="            if True:\n",
        tests=("tests/unit/storage/aws/test_ecs_tasks.py",),
    ),
    Bug(
        name="taken-messages-stay",
        breaks="A function that has taken messages itself leaves them in the queue.",
        module="interfaces/lambdas/messages.py",
        right="if each.sqs_id not in failed]",
        wrong="if each.sqs_id in failed]",
        tests=_CALLED,
    ),
    Bug(
        name="one-call-for-all-that-waits",
        breaks="The starter calls a function once, however many queries wait.",
        module="interfaces/lambdas/called_functions.py",
        right="for _ in range(calls):",
        wrong="for _ in range(min(calls, 1)):",
        tests=_CALLED,
    ),
    Bug(
        name="a-refused-call-each-time",
        breaks="A sender that may not call the function tries with each message.",
        module="storage/aws/jobs/queue_functions.py",
        right="self._again = self._now() + _GIVEN_UP",
        wrong="self._again = None",
        tests=_CALLED,
    ),
)

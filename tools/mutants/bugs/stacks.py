"""Bugs in stacks of AWS, and in the settings that they are made from."""

from __future__ import annotations

from ..bug import Bug

BUGS = (
    Bug(
        name="queries-write-tables",
        breaks="A function that runs queries may write and delete the rows of tables.",
        module="deploy/stacks/jobs.py",
        right=(
            "            *grants.read_tables(names),\n"
            "            *grants.track(names, JobKind.QUERY),\n"
        ),
        wrong=(
            "            *grants.write_tables(names),\n"
            "            *grants.track(names, JobKind.QUERY),\n"
        ),
        tests=("tests/deploy/stacks/test_roles.py",),
    ),
    Bug(
        name="trackers-without-expiry",
        breaks="Roles do not allow what a tracker asks of its tables, so that no job is tracked.",
        module="deploy/grants.py",
        right='    "DescribeTimeToLive",\n',
        wrong="",
        tests=("tests/deploy/stacks/test_enough.py",),
    ),
    Bug(
        name="two-starters",
        breaks="Two starters at once start twice as many workers as are needed.",
        module="deploy/stacks/workers.py",
        right="        reserved=1,  # two at once would start twice as many\n",
        wrong="",
        tests=("tests/deploy/stacks/test_running.py",),
    ),
    Bug(
        name="data-goes-with-its-stack",
        breaks="Tables in DynamoDB are deleted with their stack.",
        module="deploy/stacks/parts.py",
        right=(
            "            point_in_time_recovery_enabled=recovers\n"
            "        ),\n"
            "        removal_policy=RemovalPolicy.RETAIN if retain else RemovalPolicy.DESTROY,\n"
        ),
        wrong=(
            "            point_in_time_recovery_enabled=recovers\n"
            "        ),\n"
            "        removal_policy=RemovalPolicy.DESTROY,\n"
        ),
        tests=("tests/deploy/stacks/test_templates.py",),
    ),
    Bug(
        name="leases-shorter-than-calls",
        breaks="AWS refuses a function that takes longer than its messages are hidden.",
        module="deploy/settings.py",
        right="        return max(1, min(timeout_s, int(self.queue(queue).visibility_s)))\n",
        wrong="        return timeout_s\n",
        tests=("tests/deploy/stacks/test_settings.py",),
    ),
    Bug(
        name="first-failure-alone",
        breaks="A batcher without a stack for its jobs is found after it was deployed.",
        module="deploy/settings.py",
        right="    if StackName.BATCHER in chosen and wanted not in (None, *chosen):\n",
        wrong="    if StackName.BATCHER not in chosen and wanted not in (None, *chosen):\n",
        tests=("tests/deploy/stacks/test_settings.py",),
    ),
)

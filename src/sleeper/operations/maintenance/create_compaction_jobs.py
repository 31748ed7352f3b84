"""Plans compaction jobs and claims their inputs, so that no other job takes them (rule CMP-1)."""

from __future__ import annotations

from dataclasses import dataclass

from sleeper.errors import CommitRefused
from sleeper.planning.compactions import (
    CompactionPlan,
    CompactionSettings,
    plan_compactions,
)
from sleeper.ports.ids import NewId
from sleeper.state.state_store import StateStore
from sleeper.state.transactions.claims import Claim, ClaimFiles

_ATTEMPTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedJobs:
    """What was planned, and is now claimed.

    Attributes:
        plan: The jobs, and what was decided for each leaf.
        transaction: The table's transaction number afterwards.
    """

    plan: CompactionPlan
    transaction: int


def create_compaction_jobs(
    settings: CompactionSettings,
    *,
    all_files: bool = False,
    store: StateStore,
    new_id: NewId,
) -> CreatedJobs:
    """Plan jobs and claim all of their inputs in one commit; or do nothing.

    Args:
        settings: How files are chosen.
        all_files: Merge what the strategy leaves as well.
        store: The table's state, with references pushed down.
        new_id: Makes ids of jobs.

    Raises:
        CommitRefused, CommitContended: others changed the same files each time; try again.
        CommitUnknown: the inputs may be claimed, for jobs that nobody runs: until their lease ends.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        state = store.refresh()
        plan = plan_compactions(state, settings, all_files=all_files, new_id=new_id)
        if not plan.jobs:
            return CreatedJobs(plan=plan, transaction=state.number)
        assignments = tuple(
            Claim(job_id=job.job_id, partition_id=job.partition_id, filenames=job.inputs)
            for job in plan.jobs
        )
        try:
            after = store.commit(ClaimFiles(assignments=assignments))
        except CommitRefused:  # another planner was faster
            if attempt == _ATTEMPTS:
                raise
            continue
        return CreatedJobs(plan=plan, transaction=after.number)
    raise AssertionError("the last attempt returns or raises")

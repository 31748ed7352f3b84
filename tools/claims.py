"""What Sleeper claims of its reliability, and the suites that prove it, for verify_claims.py."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One claim.

    Attributes:
        name: Its short name, for the command line.
        says: What is claimed.
        faults: The faults that are made (`FAULTS`).
        invariants: What holds with them (`INVARIANTS`).
        full: Arguments of pytest: the suites that prove it.
        quick: Those that run at the tier quick; none is not run there.
        soaks: Whether some of the suites try more under `make soak`.
        missing: What the claim needs and no suite proves; "" if there is nothing.
    """

    name: str
    says: str
    faults: str
    invariants: str
    full: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()
    soaks: bool = True
    missing: str = ""

    def arguments(self, tier: str) -> tuple[str, ...]:
        """Return the arguments of pytest at a tier; none if nothing is run there."""
        if tier == "quick":
            return self.quick
        if tier == "soak":
            return ("-m", "soak", *self.full) if self.soaks and self.full else ()
        return self.full


FAULTS = {
    "F1": "a process is killed at a call of the storage",
    "F2": "the reply to a conditional write is lost",
    "F3": "refused, failed and slow calls, and bursts of them",
    "F4": "an upload is torn or abandoned",
    "F5": "a process goes on after its lease has ended",
    "F6": "messages come twice, late and in another order",
    "F7": "a listing is old or comes in parts",
    "F8": "clocks are wrong, and jump",
    "F9": "bits flip; files are missing, shorter or exchanged",
    "F10": "the disk is full; SQLite is busy; a process is killed in a commit",
    "F11": "an executor, a task or the driver of Spark dies; a task runs twice",
    "F12": "a store ignores conditions",
    "F13": "data of older versions",
    "F14": "little memory",
    "F15": "a message is damaged, or wrong in one place",
    "F16": "an instance is moved, replaced or restored under an open handle",
}
INVARIANTS = {
    "I1": "an acknowledged commit is never lost",
    "I2": "another one is there wholly or not at all",
    "I3": "entries have no gap, and each has one writer",
    "I4": "each job id is applied once",
    "I5": "compaction, split and merge keep the rows",
    "I6": "leaves cover all keys",
    "I7": "each referenced file exists",
    "I8": "in the end, what is stored is what is needed",
    "I9": "a reader of a version gets its rows",
    "I10": "a process sees its own commits, and versions ascend",
    "I11": "rows are in order and in their leaf; counts and sketches are true",
    "I12": "the result of merges does not depend on compactions",
    "I13": "rows are not aged off too early",
    "I15": "damage is named, and never returned as rows",
    "I16": "when faults end, all jobs are done",
    "I17": "a seed gives the same run",
    "I18": "memory is bounded",
}

CLAIMS = (
    Claim(
        name="simulation",
        says="simulated worlds of processes, by a seed",
        faults="F1-F5 F7 F8",
        invariants="I1-I11 I17",
        full=("tests/simulator",),
        quick=("tests/simulator",),
    ),
    Claim(
        name="crash-points",
        says="every call of every operation fails, dies, or is overtaken",
        faults="F1 F2",
        invariants="I1-I8",
        full=("tests/any_order/test_crash_points.py", "tests/any_order/test_every_write.py"),
        quick=("tests/any_order/test_crash_points.py", "-k", "memory or ingest"),
    ),
    Claim(
        name="model-checked",
        says="protocols checked by a model checker",
        faults="all orders",
        invariants="I1-I3 I5-I7",
        missing="there are no specifications for a model checker; see crash-points and simulation",
    ),
    Claim(
        name="kills",
        says="real processes are killed by SIGKILL: in folders, buckets, SQLite, serve",
        faults="F1 F10",
        invariants="I1-I4 I7 I8 I16",
        full=(
            "tests/any_order/test_sigkill.py",
            "tests/any_order/test_state_processes.py",
            "tests/any_order/killed_serve",
            "tests/contracts/test_folder_processes.py",
            "tests/contracts/jobs/test_sqlite_processes.py",
        ),
        quick=("tests/contracts/test_folder_processes.py", "tests/any_order/test_sigkill.py"),
    ),
    Claim(
        name="lost-writes",
        says="what is acknowledged was synced to the disk before",
        faults="F4",
        invariants="I1 I2",
        full=(
            "tests/unit/storage/local/test_folder.py",
            "tests/unit/storage/test_unfinished_files.py",
        ),
        quick=("tests/unit/storage/local/test_folder.py",),
        soaks=False,
        missing="no test drops unsynced data; the order of syncs is what is checked",
    ),
    Claim(
        name="any-order",
        says="operations in any order beside lists of rows, on each state store",
        faults="F2 F3",
        invariants="I3 I5 I9-I13",
        full=(
            "tests/any_order/test_instance.py",
            "tests/any_order/test_instance_stores.py",
            "tests/any_order/test_state.py",
            "tests/any_order/test_jobs.py",
            "tests/any_order/test_revision_sweeps.py",
            "tests/random_tables",
        ),
        quick=("tests/any_order/test_state.py", "tests/random_tables"),
    ),
    Claim(
        name="writers-at-once",
        says="many writers of one table, thread and process",
        faults="F2 F3",
        invariants="I3 I4 I9 I10",
        full=(
            "tests/contracts/state",
            "tests/stories/test_processes.py",
            "tests/stories/test_store_faults.py",
        ),
        quick=("tests/stories/test_processes.py",),
        missing="no checker of linearisable histories; each process compares what it was told",
    ),
    Claim(
        name="zombies-and-versions",
        says="late writers are refused; instances of older commits open",
        faults="F5 F8 F13",
        invariants="I1 I3 I7",
        full=(
            "tests/stories/test_old_instances.py",
            "tests/any_order/test_clocks.py",
            "tests/unit/tables/test_late_entries.py",
            "tests/unit/tables/test_sweep_and_ingest.py",
            "tests/unit/tables/test_collectors_at_once.py",
        ),
        quick=("tests/stories/test_old_instances.py", "tests/unit/tables"),
        missing="an older Sleeper never reads what this one writes",
    ),
    Claim(
        name="corruption",
        says="every kind of damage is found by its name, and never returned as rows",
        faults="F9",
        invariants="I11 I15",
        full=(
            "tests/stories/test_verify.py",
            "tests/stories/test_verify_stores.py",
            "tests/unit/engine/reading/test_check_file.py",
            "tests/unit/lookup",
            "tests/stories/test_damaged_ranges.py",
            "tests/stories/test_parquet_bombs.py",
        ),
        quick=("tests/stories/test_verify.py", "tests/unit/engine/reading/test_check_file.py"),
    ),
    Claim(
        name="stores",
        says="each adapter keeps its contract; a store that breaks conditions is refused",
        faults="F7 F12",
        invariants="I1 I3",
        full=(
            "tests/contracts/test_conditions.py",
            "tests/contracts/test_folder_storage.py",
            "tests/contracts/test_memory_storage.py",
            "tests/contracts/test_objectstore_storage.py",
            "tests/contracts/jobs",
            "tests/stories/test_broken_stores.py",
        ),
        quick=("tests/contracts/test_conditions.py", "tests/contracts/test_folder_storage.py"),
    ),
    Claim(
        name="messages",
        says="jobs that are delivered twice, late, or while a worker dies are done once",
        faults="F1 F6 F10",
        invariants="I4 I16",
        full=(
            "tests/contracts/jobs/test_any_order.py",
            "tests/any_order/test_jobs.py",
            "tests/stories/test_exactly_once.py",
        ),
        quick=("tests/stories/test_exactly_once.py",),
    ),
    Claim(
        name="malformed-messages",
        says="no message ends a worker: it is answered with a reason, and the next one runs",
        faults="F15",
        invariants="I16",
        full=(
            "tests/stories/test_malformed_messages.py",
            "tests/hostile/test_messages_to_serve.py",
        ),
        quick=("tests/hostile/test_messages_to_serve.py",),
        missing="a request to the committer may name a file that is not there",
    ),
    Claim(
        name="moved-instances",
        says="a handle goes on only where the log that it knows is still in place",
        faults="F16",
        invariants="I1 I3 I4",
        full=(
            "tests/any_order/test_replaced_instances.py",
            "tests/contracts/test_replaced_instances.py",
        ),
        quick=("tests/any_order/test_replaced_instances.py",),
    ),
    Claim(
        name="spark",
        says="executors, tasks and drivers of Spark die or run twice",
        faults="F11",
        invariants="I2 I4 I5",
        full=("tests/spark/cluster",),
        soaks=False,
    ),
    Claim(
        name="age-off",
        says="rows are filtered by age only when they are old enough",
        faults="none",
        invariants="I13",
        full=("tests/stories/test_aggregation_and_age.py", "tests/unit/engine/processing"),
        quick=("tests/stories/test_aggregation_and_age.py",),
        soaks=False,
        missing="rows have no visibility labels",
    ),
    Claim(
        name="memory",
        says="memory stays bounded",
        faults="F14",
        invariants="I18",
        full=("tests/unit/engine/sorting/test_sort.py", "tests/unit/engine/test_merge.py"),
        quick=("tests/unit/engine/sorting/test_sort.py",),
        soaks=False,
        missing="no run under a limit of memory: `make bench` measures it (docs/performance.md)",
    ),
)

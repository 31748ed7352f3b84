"""Picture tests: a table drawn, what happens to it, and the table drawn after.

The scenes are in the text files beside this one; a blank line ends a scene. Each goes through
the log's JSON on its way. A drawing has these lines, each of them only where there is something:

    partitions  root[..] > L[..50) R[50..]      a parent, then its children, lower first
    files       a@root:100 b@L:~50 c@R:7/!job   rows; ~ estimated, / a share, ! the job's claim
    waiting     d                               files that wait for garbage collection
    jobs        job-1                           committed ingest jobs

A file with an estimated count is always a share. After `----` comes the drawing, or the refusal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from sleeper.errors import CommitRefused
from sleeper.state.commit import apply_entry
from sleeper.state.log_entry import LogEntry, decode_entry, encode_entry
from sleeper.state.table_state import CommittedJob
from sleeper.state.transactions.files import (
    AddFiles,
    Claim,
    ClaimFiles,
    ClearFiles,
    DeleteFiles,
    ReferencePush,
    ReplaceFiles,
    SplitFileReferences,
)
from sleeper.state.transactions.partitions import ExtendPartitionTree
from tests.unit.state.small_tables import (
    LATER,
    MUCH_LATER,
    NOON,
    SCHEMA,
    after,
    one_partition,
    ref,
    split,
)

HERE = Path(__file__).parent
REFERENCE = re.compile(r"(?:(\w[\w.-]*)@)?(\w+):(~?)(\d+)(/?)(?:!([\w-]+))?")
DRAWN = ("partitions", "files", "waiting", "jobs")


@dataclass(frozen=True)
class Scene:
    story: str
    before: list[str]
    commands: list[str]
    after: list[str]


def scenes():
    for path in sorted(HERE.glob("*.txt")):
        for number, text in enumerate(re.split(r"\n\s*\n", path.read_text().strip()), start=1):
            yield pytest.param(read_scene(text), id=f"{path.stem}-{number}")


def read_scene(text):
    above, below = text.split("\n----\n")
    lines = above.splitlines()
    drawn = [line for line in lines if line.startswith(DRAWN)]
    told = [line.lstrip("# ") for line in lines if line.startswith("#")]
    commands = [line for line in lines if not line.startswith(("#", *DRAWN))]
    return Scene(" ".join(told), drawn, commands, below.splitlines())


def build(drawing):
    """The table that a drawing shows."""
    table, files, waiting, jobs = one_partition(), [], (), ()
    for kind, *words in map(str.split, drawing):
        if kind == "partitions" and len(words) > 1:
            parent, _, lower, upper = (re.split(r"\[", word)[0] for word in words)
            point = int(re.search(r"\.\.(-?\d+)\)", words[2])[1])
            table = after(table, split(table.partition(parent), point, lower, upper))
        elif kind == "files":
            files = [read_reference(word) for word in words]
        elif kind == "waiting":
            waiting = words
        elif kind == "jobs":
            jobs = words
    index = table.files.changed(added=files, unreferenced=waiting, at=NOON)
    for job_id in jobs:
        table = after(table, AddFiles(job=finished(job_id)))
    return replace(table, files=index)


def draw(table):
    """The drawing of a table."""
    lines = []
    parents = [table.tree.root]
    while parents:
        parent = parents.pop(0)
        children = [table.partition(child_id) for child_id in parent.child_ids]
        if children:
            lines.append(f"partitions {named(parent)} > {' '.join(map(named, children))}")
        elif parent.parent_id is None:
            lines.append(f"partitions {named(parent)}")
        parents += children
    lines.append("files " + " ".join(map(write_reference, table.references())))
    lines.append("waiting " + " ".join(name for name, _ in table.files.unreferenced()))
    lines.append("jobs " + " ".join(job_id for job_id, _ in table.jobs.records()))
    return [line for line in lines if len(line.split()) > 1]


def named(partition):
    key_range = partition.region.ranges[0]
    low = "" if key_range.min == -(2**63) else key_range.min
    high = "]" if key_range.max is None else f"{key_range.max})"
    return f"{partition.partition_id}[{low}..{high}"


def read_reference(word, filename=None):
    name, place, estimated, rows, share, job_id = REFERENCE.fullmatch(word).groups()
    return ref(
        filename or name,
        place,
        int(rows),
        row_count_estimated=bool(estimated),
        whole_file=not (estimated or share),
        job_id=job_id,
    )


def write_reference(found):
    estimated = "~" if found.row_count_estimated else ""
    share = "" if found.whole_file or estimated else "/"
    claim = f"!{found.job_id}" if found.job_id else ""
    return f"{found.filename}@{found.partition_id}:{estimated}{found.row_count}{share}{claim}"


def finished(job_id):
    return CommittedJob(job_id=job_id, keep_until=MUCH_LATER, rows_read=1, rows_written=1)


def transaction(table, command):
    """What a line of a scene says is to be done."""
    match command.replace(",", " ,").split():
        case ["add", *words, "by", job_id]:
            return AddFiles(references=tuple(map(read_reference, words)), job=finished(job_id))
        case ["add", *words]:
            return AddFiles(references=tuple(map(read_reference, words)))
        case ["claim", job_id, place, *names]:
            claim = Claim(job_id=job_id, partition_id=place, filenames=tuple(names))
            return ClaimFiles(assignments=(claim,))
        case ["compact", job_id, place, *names, "into", output]:
            name, rows = output.split(":")
            return ReplaceFiles(
                job_id=job_id, inputs=tuple(names), output=ref(name, place, int(rows))
            )
        case ["push", name, place, "into", *words]:
            into = tuple(read_reference(word, name) for word in words)
            return SplitFileReferences(
                pushes=(ReferencePush(filename=name, partition_id=place, into=into),)
            )
        case ["split", place, "at", point, "into", lower, upper]:
            return split(table.partition(place), int(point), lower, upper)
        case ["grow", *words]:
            return grown(table, " ".join(words).split(","))
        case ["collect", *names]:
            return DeleteFiles(filenames=tuple(names))
        case ["clear"]:
            return ClearFiles()
    raise ValueError(f"no scene knows how to {command!r}")


def grown(table, splits):
    """One extension of the tree that does several splits."""
    there, changed = set(table.tree.partitions), {}
    for each in splits:
        step = transaction(table, f"split {each}")
        table = after(table, step)
        changed |= {p.partition_id: p for p in (step.parent, *step.children)}
    return ExtendPartitionTree(
        updated=tuple(p for name, p in changed.items() if name in there),
        new=tuple(p for name, p in changed.items() if name not in there),
    )


def play(table, commands):
    """The drawing after all commands, or the first refusal."""
    for number, command in enumerate(commands, start=table.number + 1):
        entry = LogEntry(entry_id="id", at=LATER, transactions=(transaction(table, command),))
        read = decode_entry(encode_entry(entry, SCHEMA), SCHEMA, f"entry {number}")
        try:
            read.transactions[0].apply(table, LATER)
        except CommitRefused as refusal:
            return [f"refused {type(refusal).__name__}: {refusal}"]
        table = apply_entry(table, number, read)
    return draw(table)


def words_of(lines):
    return [line.split() for line in lines]


@pytest.mark.parametrize("scene", [*scenes()])
def test_scene(scene):
    """The table after the commands looks as it is drawn, and the one before as well."""
    table = build(scene.before)

    played = play(table, scene.commands)

    assert scene.story
    assert words_of(draw(table)) == words_of(scene.before)
    if scene.after[0].startswith("refused"):
        assert played[0].startswith(scene.after[0])
    else:
        assert words_of(played) == words_of(scene.after)

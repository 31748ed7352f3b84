"""Compaction of one leaf's files, beside upstream's Rust engine on the same rows.

Ours is the whole `table.compact(all_files=True)`: start of the process, checks of pages, commit.
Upstream's is its engine alone, driven by the program that bench/upstream builds. Each reads the
files that the earliest of our checkouts wrote.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from bench.anchors.processes import inside, run
from bench.anchors.run import Run
from bench.instance_copy import copy_instance

FILES = 11
KINDS = ("plain", "sums", "age_off")
UPSTREAM, UPSTREAM_IN_OURS = "upstream", "upstream, our groups"
OUR_GROUPS = {"ROW_GROUP": "32768", "PAGE_BYTES": "16384"}


def measure(asked: Run) -> None:
    """Make the inputs once for each kind, and compact copies of them in turn."""
    for kind in KINDS:
        folder = asked.folder / f"compaction-{kind}"
        made = {}
        for name in asked.ours:
            used = inside(
                asked.python(name),
                "compactions",
                "inputs",
                folder / name,
                FILES,
                asked.sizes["compaction"],
                kind,
            )
            made[name] = used.said
        first = made[asked.ours[0]]
        subjects = list(asked.ours)
        if asked.upstream is not None:
            subjects.append(UPSTREAM)
            if kind == "plain":
                subjects.append(UPSTREAM_IN_OURS)

        def one_run(
            name: str, _: int, kind: str = kind, folder: Path = folder, first: dict = first
        ) -> None:
            if name in asked.ours:
                ours(asked, name, kind, folder)
            else:
                upstreams(asked, name, kind, folder / "upstream.parquet", first)

        asked.each(subjects, one_run)
        shutil.rmtree(folder)


def ours(asked: Run, name: str, kind: str, folder: Path) -> None:
    """One compaction of a copy."""
    copy = folder / "copy"
    copy_instance(folder / name, copy)
    used = inside(asked.python(name), "compactions", "compact", copy)
    asked.add(f"compaction_{kind}", name, used.cpu_s, used.peak_mb)
    if kind == "plain":
        asked.add("compaction_equal", name, used.cpu_s, used.peak_mb)
        asked.add("compaction_memory", name, used.peak_mb)
        asked.add("compaction_wall", name, used.wall_s)
        asked.add("compacted_mb", name, used.said["mb"])


def upstreams(asked: Run, name: str, kind: str, output: Path, made: dict) -> None:
    """One compaction by upstream's engine, of the same files."""
    output.unlink(missing_ok=True)
    urls = [f"file://{path}" for path in made["paths"]]
    layout = OUR_GROUPS if name == UPSTREAM_IN_OURS else {}
    command = [str(asked.upstream), "compact", f"file://{output}", *urls]
    used = run(command, environment={**layout, **made["environment"]})
    if name == UPSTREAM_IN_OURS:
        asked.add("compaction_equal", name, used.cpu_s, used.peak_mb)
        return
    asked.add(f"compaction_{kind}", name, used.cpu_s, used.peak_mb)
    if kind == "plain":
        asked.add("compaction_memory", name, used.peak_mb)
        asked.add("compaction_wall", name, used.wall_s)
        asked.add("compacted_mb", name, output.stat().st_size / 1e6)

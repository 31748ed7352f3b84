"""Reads in a bucket at 20 ms a request, beside the peers that read one; requests of an append."""

from __future__ import annotations

import shutil

from bench.anchors.processes import inside, run
from bench.anchors.run import Run
from bench.anchors.sections.tables import QUESTIONS_FILE, load, write_inputs
from bench.folder_bucket import folder_bucket

PEERS = ("deltalake", "lance", "polars", "datafusion")
DELAY_S = 0.020
FIGURES = ("requests", "round_trips", "mb", "ms")


def measure(asked: Run) -> None:
    """Peers' tables are loaded in a folder and asked through its server; ours, through that too."""
    folder = asked.folder / "bucket"
    folder.mkdir()
    write_inputs(asked, folder)
    subjects = [*asked.ours, *(name for name in asked.peers if name in PEERS)]
    for name in subjects:
        if name in asked.ours:
            inside(asked.python(name), "row_groups", folder / f"groups-{name}")
        else:
            load(asked, name, folder)
    with folder_bucket(folder) as bucket:
        settings = {
            "AWS_ENDPOINT_URL": bucket.endpoint,
            "AWS_ACCESS_KEY_ID": "x",
            "AWS_SECRET_ACCESS_KEY": "x",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
            "AWS_EC2_METADATA_DISABLED": "true",
            "NO_PROXY": "127.0.0.1",
        }

        def ask(name: str, what: str, place: str, path: str) -> tuple[dict, float]:
            module = "bench.anchors.inside.bucket"
            command = [asked.python(name), "-m", module, what, place, str(folder / path)]
            used = run(command, environment=settings)
            return used.said, used.peak_mb

        for name in asked.ours:
            ask(name, "load", name, "inputs")
        bucket.delay_s = DELAY_S

        def one_run(name: str, _: int) -> None:
            is_ours = name in asked.ours
            report, peak_mb = ask(name, "sleeper" if is_ours else name, name, QUESTIONS_FILE)
            if is_ours:
                report |= ask(name, "groups", f"groups-{name}", "")[0]
                threads, threads_mb = ask(name, "threads", name, QUESTIONS_FILE)
                asked.add("bucket_threads", name, threads["each_second"], threads_mb)
                asked.add("bucket_threads_cpu", name, threads["cpu_ms"])
            for operation, found in report.items():
                for figure in FIGURES:
                    asked.add(f"bucket_{operation}_{figure}", name, found[figure], peak_mb)

        asked.each(subjects, one_run)
    shutil.rmtree(folder)


def appends(asked: Run) -> None:
    """How many requests an append is: it never changes, so once is enough."""
    for name in asked.ours:
        used = inside(asked.python(name), "bucket_appends")
        asked.add("bucket_append", name, used.said["requests"], used.peak_mb)

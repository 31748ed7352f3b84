"""Takes the pictures of the web page in docs/pictures: the same instance, clock and ids each time.

python tools/screenshots.py        part of `make docs`; without a Chromium it says so
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import uvicorn
from fastapi import FastAPI
from playwright.sync_api import sync_playwright

from sleeper.instance.instance import Instance, process_context
from sleeper.interfaces.page.mount import add_pages
from sleeper.interfaces.rest.app import make_app
from sleeper.interfaces.rest.tokens import TokenFile
from sleeper.model.jobs.messages import NewMessage
from sleeper.ports import clock as clocks
from sleeper.storage.memory import MemoryObjects
from sleeper.storage.places import Place

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from tests.browser.chromium import find_chromium  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
READINGS = pa.schema(
    [
        ("station", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("celsius", pa.float64()),
        ("note", pa.string()),
    ]
)
STATIONS = pa.schema([("station", pa.string()), ("place", pa.string()), ("metres", pa.int64())])
STATEMENT = """\
SELECT place, count(*) AS readings, round(avg(celsius), 2) AS mean
FROM readings JOIN stations USING (station)
GROUP BY place ORDER BY place
"""
SHOTS = {
    "page-instance": ("/page", "light", 1000, 640),
    "page-table": ("/page/tables/readings", "light", 1000, 900),
    "page-rows": (
        f"/page/tables/readings/rows?by=sql&ask=1&sql={STATEMENT}",
        "light",
        1000,
        900,
    ),
    "page-history": ("/page/tables/readings/history", "light", 1000, 860),
    "page-maintenance-dark": ("/page/tables/readings/maintenance", "dark", 1000, 640),
    "page-phone-dark": ("/page/tables/readings", "dark", 360, 900),
}
"""Each picture: its page, the colours, and the width and height of the window."""


@dataclass
class Clock:
    """A clock that stands still until it is set forward."""

    time: datetime = NOON - timedelta(days=3)
    ids: Iterator[int] = field(default_factory=lambda: count(1))

    def now(self) -> datetime:
        """Return the time."""
        return self.time

    def new_id(self) -> str:
        """Return the next id."""
        return f"{next(self.ids):08x}-0000-4000-8000-000000000000"


def weather_instance() -> Instance:
    """Return an instance with tables, jobs and dead letters, the same each time."""
    clock = Clock()
    instance = Instance(
        Place("memory://weather", MemoryObjects(clock.now)),
        {"sleeper.id": "weather"},
        process=process_context(
            clock=clocks.Clock(
                now=clock.now,
                ticks_s=lambda: clock.now().timestamp(),
                sleep=time.sleep,
                back_off=lambda attempt: None,
            ),
            new_id=clock.new_id,
        ),
    )
    points = [f"S{n}00" for n in range(1, 10)]
    readings = instance.create_table(
        "readings", READINGS, row_keys=["station"], sort_keys=["at"], split_points=points
    )
    draw = np.random.default_rng(7)
    for hour in range(0, 72, 8):
        clock.time += timedelta(hours=8)
        readings.ingest(_readings(draw, hour), job_id=f"load-{hour:02}")
        if hour == 40:
            readings.compact()
    stations = instance.create_table("stations", STATIONS, row_keys=["station"])
    places = ("Aberdeen", "Bergen", "Cork", "Dublin", "Esbjerg")
    rows = [(f"S{n:03}", places[n % 5], 10 * n % 970) for n in range(1000)]
    names = STATIONS.names
    stations.ingest([dict(zip(names, row, strict=True)) for row in rows], job_id="places")
    _add_jobs(instance)
    clock.time = NOON
    return instance


def _readings(draw: np.random.Generator, hour: int) -> pa.Table:
    number = np.sort(draw.triangular(0, 300, 999, 2_400).astype(int))
    start = int((NOON - timedelta(days=3)).timestamp()) + 3_600 * hour
    at = pa.array((start + draw.integers(0, 28_800, 2_400)) * 1_000_000)
    note = np.where(draw.random(2_400) < 0.02, "sensor <b>replaced</b>", "")
    columns = [
        pa.array([f"S{n:03}" for n in number]),
        at.cast(READINGS.field("at").type),
        pa.array(np.round(draw.normal(9, 6, 2_400), 1)),
        pa.array(note.tolist()),
    ]
    return pa.table(columns, schema=READINGS)


def _add_jobs(instance: Instance) -> None:
    """Add jobs that wait, and dead letters."""
    queue = instance.jobs.stores.queue("ingest")  # type: ignore[arg-type]
    body = '{"id": "load-%s", "tableName": "readings", "files": ["s3://weather/%s.parquet"]}'
    queue.send([NewMessage(body=body % (day, day)) for day in ("2026-05-30", "2026-05-31")])
    for message in queue.receive(10):
        queue.bury(message.receipt, "the storage of its files could not be reached, 3 times")
    queue.send([NewMessage(body=body % ("2026-06-01", "2026-06-01"))])


@contextmanager
def served(instance: Instance, tokens: TokenFile | None = None) -> Iterator[str]:
    """Serve an instance on a free port of this machine, and yield the server's URL."""
    app: FastAPI = make_app(instance, tokens=tokens)
    add_pages(app)
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error"))
    thread = Thread(target=server.run, daemon=True)
    thread.start()
    _wait(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)


def _wait(is_done: Callable[[], bool], seconds: float = 20) -> None:
    end = monotonic() + seconds
    while not is_done():
        if monotonic() > end:
            raise TimeoutError("the server did not start")
        sleep(0.01)


def main() -> int:
    """Take every picture. Return the exit code."""
    instance = weather_instance()
    table = instance.table("readings")
    for name, drawn in (("plot-tree", table.plot_tree()), ("plot-history", table.plot_history())):
        drawn.save(PICTURES / f"{name}.svg")
    browser_path = find_chromium()
    if browser_path is None:
        print("docs/pictures/page-*.png stay as they are: there is no Chromium; run: make servers")
        return 0
    with served(instance) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        for name, (path, colours, width, height) in SHOTS.items():
            page = browser.new_page(
                color_scheme="dark" if colours == "dark" else "light",
                viewport={"width": width, "height": height},
            )
            page.goto(url + quote(path, safe="/?&="))
            new = page.screenshot()
            page.close()
            target = PICTURES / f"{name}.png"
            if not target.exists() or target.read_bytes() != new:
                target.write_bytes(new)
                print(f"wrote {target.relative_to(ROOT)}, {len(new):,} bytes")
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""One phase of one system in a process of its own; the last line that it prints is its result.

python -m bench.peers.one_phase SYSTEM load|look-ups|upkeep|questions FOLDER [PLACE]

The table is in FOLDER/PLACE, or in FOLDER/SYSTEM.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from bench.peers.questions import Questions
from bench.peers.system import System
from bench.peers.systems import system_class

LOOK_UPS = 200
LOOK_UPS_SECONDS = 2.0
WARMING = 50


def main(name: str, phase: str, folder: Path, place_name: str = "") -> None:
    """Do the phase, and print its CPU seconds, its peak memory, and what it measured."""
    kind = system_class(name)
    asked = Questions(**json.loads((folder / "questions.json").read_text()))
    place = folder / (place_name or name)
    place.mkdir(exist_ok=True)
    system = kind(place)
    before = _cpu()
    measured: dict[str, float] = {}
    if phase == "load":
        system.begin()
        for path in sorted((folder / "inputs").glob("*.parquet")):
            system.append(path)
    elif phase == "upkeep":
        system.maintain()
    elif phase == "look-ups":
        measured = look_ups(system, asked)
    else:
        measured = answers(system, asked)
    peak_kb = max(resource.getrusage(who).ru_maxrss for who in _WHO)
    print(json.dumps({"cpu_s": _cpu() - before, "peak_mb": peak_kb / 1024, **measured}))


def answers(system: System, asked: Questions) -> dict[str, float]:
    """Ask everything, check the answers, and return CPU milliseconds of each question."""
    return {
        **look_ups(system, asked),
        "many_ms": _each(system.many, [(asked.many,)] * 3, rows=len(asked.many)),
        "small_ms": _each(system.between, asked.small),
        "large_ms": _each(system.between, asked.large[:5]),
        "sum_ms": _summed(system, asked),
        "count_ms": _each(system.count, [()] * 3, rows=asked.row_count),
    }


def look_ups(system: System, asked: Questions) -> dict[str, float]:
    """Open, and ask for single keys: for others first, so that indexes are in memory."""
    system.open()
    started = perf_counter()
    for key in asked.hits[LOOK_UPS : LOOK_UPS + WARMING]:
        system.one(key)
        if perf_counter() - started > LOOK_UPS_SECONDS:
            break
    return {
        "hit_ms": _each(system.one, [(key,) for key in asked.hits], rows=1),
        "miss_ms": _each(system.one, [(key,) for key in asked.misses], rows=0),
    }


def _each(ask: Callable[..., Any], questions: list[Any], rows: int | None = None) -> float:
    """Mean CPU of a question, after one that does not count; `rows` is what each must give."""
    ask(*questions[0])
    asked, started, before = 0, perf_counter(), process_time()
    for question in questions[:LOOK_UPS]:
        found = _count(ask(*question))
        assert rows is None or found == rows, (question, found, rows)
        asked += 1
        if perf_counter() - started > LOOK_UPS_SECONDS:
            break
    return (process_time() - before) * 1000 / asked


def _summed(system: System, asked: Questions) -> float:
    before = process_time()
    answer = system.count_and_sum()
    assert answer == (asked.row_count, asked.total), answer
    return (process_time() - before) * 1000


def _count(answer: Any) -> int:
    if isinstance(answer, int):
        return answer
    return answer.num_rows if hasattr(answer, "num_rows") else len(answer)


_WHO = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)


def _cpu() -> float:
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, _WHO))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), *sys.argv[4:])

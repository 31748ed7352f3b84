"""`sleeper serve` is killed again and again while jobs run: nothing is lost, nothing is doubled."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from sleeper.interfaces.cli.stderr import EXIT_TERMINATED
from tests.any_order.killed_serve.asked import Asked, Results, ResultsInBucket, ResultsInFolder
from tests.any_order.killed_serve.found import Found
from tests.any_order.killed_serve.served import Served, processes_of
from tests.contracts.s3_server import aws_endpoint, s3_credentials, s3_server
from tests.patience import becomes_true
from tests.soak import FIRST_SEED, SOAK, tries

__all__ = ["aws_endpoint", "s3_credentials", "s3_server"]

KILLS = {"in_folder": tries(4, soak=500), "in_bucket": tries(2, soak=100)}
WAITING_MAX = tries(3, soak=6)
GONE_S = 120.0  # workers look once a second, and have five seconds then; the machine is busy
ASKED_CODES = (0, -signal.SIGTERM, EXIT_TERMINATED)  # the last two before it could listen
PROGRESS_S = 15.0
STEP_S = 0.3
LOOP_SHARE = 0.3
FIRST_LIVES = (("child", "session"), ("child", "parent"))
ENDS = ("parent", "session", "asked")


class Kills:
    """Starts one serve after the other, and kills it, or its children.

    Args:
        asked: What it is asked to do.
        draw: Decides when and whom.
        log: Gets what is logged.
    """

    def __init__(self, asked: Asked, draw: random.Random, log: Path) -> None:
        self.counts: Counter[str] = Counter()
        self.longest_s = 0.0
        self._asked, self._draw, self._log = asked, draw, log
        self._ended: dict[int, float] = {}

    def start(self, started: ExitStack) -> Served:
        """Start a serve, with few workers of a kind, or with compactions in its own loop."""
        limits = {"query": 1, "ingest": self._draw.randint(1, 2)}
        if self._draw.random() < LOOP_SHARE:
            limits["compaction"] = 0
        options = [f"--job-workers={kind}={count}" for kind, count in limits.items()]
        options.append(f"--workers={self._draw.randint(1, 2)}")
        served = Served(self._asked.instance.url, self._log, *options)
        started.callback(served.clean_up)
        return served

    def live(self, served: Served, kills: tuple[str, ...]) -> None:
        """Let a serve work while jobs come in, and kill its children; the last kill is its own."""
        for at, kill in enumerate(kills):
            if self._draw.random() < 0.5:
                self._wait_for_work()
            self._rest(0.1, 1.5 if at else 6.0)
            match kill:
                case "child":
                    self.counts[kill] += served.kill_children(self._draw)
                    continue
                case "parent":
                    served.kill()
                case "session":
                    served.kill_session()
                case _:
                    assert served.ask_to_end() in ASKED_CODES
            self.counts[kill] += 1
        self._ended[served.session] = time.monotonic()

    def check_all_are_gone(self) -> None:
        """Check that no process of a serve that has ended is left after a while."""
        for session, ended in [*self._ended.items()]:
            left, for_s = processes_of(session), time.monotonic() - ended
            assert not left or for_s < GONE_S, left
            if left:
                self.longest_s = max(self.longest_s, for_s)
            else:
                del self._ended[session]

    def wait_until_all_are_gone(self) -> None:
        """Wait until no process is left."""
        assert becomes_true(lambda: self.check_all_are_gone() or not self._ended)

    def _wait_for_work(self) -> None:
        """Wait until a job is done, for a while."""
        before, deadline = self._asked.progress(), time.monotonic() + PROGRESS_S
        while self._asked.progress() == before and time.monotonic() < deadline:
            self._rest(STEP_S, STEP_S)

    def _rest(self, least_s: float, most_s: float) -> None:
        """Wait for a while; jobs come in meanwhile, and processes of earlier serves end."""
        deadline = time.monotonic() + self._draw.uniform(least_s, most_s)
        while (left_s := deadline - time.monotonic()) > 0:
            self._asked.ask(WAITING_MAX)
            self.check_all_are_gone()
            time.sleep(min(STEP_S, max(0.0, left_s)))


@pytest.fixture
def in_folder(tmp_path: Path) -> Results:
    """An instance in a folder, whose jobs are in SQLite."""
    return ResultsInFolder(tmp_path / "instance")


@pytest.fixture
def in_bucket(s3_server, aws_endpoint) -> Results:
    """An instance in a bucket of a server, whose jobs are in SQS and DynamoDB there."""
    return ResultsInBucket(s3_server.new_bucket())


@pytest.mark.soak
@pytest.mark.parametrize("place", KILLS)
def test_kills_of_serve_lose_no_job_and_double_none(tmp_path: Path, place, request) -> None:
    """
    Given jobs of every kind under way, when serve or any of its processes is killed at any moment,
    or asked to end, then no process is left, and in the end each job is finished, each of its rows
    is there once, each result is a version of its table, and no queue has a message.
    """
    draw = random.Random(FIRST_SEED)
    log = tmp_path / "serve.log"
    asked = Asked(tmp_path, request.getfixturevalue(place), draw)
    found = Found(asked)
    kills = Kills(asked, draw, log)
    begun = time.monotonic()
    overdue_s = 0.0
    with asked.instance, ExitStack() as started:
        first = iter(FIRST_LIVES)
        while kills.counts.total() < KILLS[place]:
            children = ("child",) * draw.randrange(6)
            kills.live(kills.start(started), next(first, (*children, draw.choice(ENDS))))
            overdue_s = max(overdue_s, found.overdue_s())
        killing_s = time.monotonic() - begun

        asked.ask(WAITING_MAX)
        last = kills.start(started)
        assert becomes_true(
            lambda: kills.check_all_are_gone() or asked.make_batches() or found.is_all_done()
        )
        assert becomes_true(lambda: found.overdue_s() <= 0)
        assert becomes_true(lambda: not (SOAK and found.claims()))
        assert last.ask_to_end() == 0
        assert processes_of(last.session) == []
        kills.wait_until_all_are_gone()

        rows, compactions = found.check(), found.compactions()
    assert "Traceback" not in log.read_text()
    took_s = time.monotonic() - begun
    print(  # noqa: T201 - pytest -rP shows how much was tried
        f"{place}, seed {FIRST_SEED}: {kills.counts.total()} kills {dict(kills.counts)} of serve in"
        f" {killing_s:.0f} s, all in {took_s:.0f} s; jobs {dict(asked.kinds())}, {rows:,} rows;"
        f" compactions {dict(compactions)};"
        f" the last process was gone {kills.longest_s:.1f} s after its serve,"
        f" a claim was held {overdue_s:.0f} s after its lease"
    )

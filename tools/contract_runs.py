"""Which contracts are run over which adapters, on which servers: what pytest collects."""

from __future__ import annotations

import contextlib
import inspect
import io
import re
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from shown_runs import ROOT, RunFailed

CONTRACTS = ROOT / "tests" / "contracts"
SERVER_FIXTURES = ("s3_server", "dynamo_endpoint", "sqs_server")
ONLY_SERVER = "ministack"
"""What these fixtures are where a test has no choice."""
INTRODUCTION = """\
# Contracts and servers

Each interface in `ports` has a suite of tests, its contract, which every adapter passes. Adapters
of services pass it on each server here that speaks the service's protocol; what the servers are,
and how they are started: [testing](../testing.md#servers). *In part* means that `make test` runs
some of the tests on that server, and `make soak` all of them.
"""
DIFFERENCES = """
## What servers do otherwise

A test that shows a difference from Amazon's services is run on that server as well, and has to fail
there. So a difference that is mended is noticed.

| server | test | what the server does |
|---|---|---|
"""


@dataclass
class Runs:
    """What was collected, given to pytest as a plug-in.

    Attributes:
        tests: Names of tests, by contract, class of tests, and server.
    """

    tests: dict[type, dict[type, dict[str, set[str]]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(lambda: defaultdict(set)))
    )

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Sort the tests."""
        for item in session.items:
            cls = getattr(item, "cls", None)
            if cls is None or not isinstance(item, pytest.Function):
                continue
            contract = contract_of(cls, item.originalname)
            if contract is not None:
                self.tests[contract][cls][server_of(item)].add(item.originalname)


def contracts_page() -> str:
    """Every contract with its adapters and servers, and what the servers do otherwise."""
    runs = collect()
    text = f"<!-- Generated: run `make docs`. -->\n\n{INTRODUCTION}"
    text += "\n| contract | adapter | servers |\n|---|---|---|\n"
    for contract in sorted(runs.tests, key=title):
        name = f"[{title(contract)}](../../{file_of(contract)})"
        for cls in sorted(runs.tests[contract], key=lambda cls: (file_of(cls), line_of(cls))):
            adapter = f"[{adapter_of(cls)}](../../{file_of(cls)})"
            text += f"| {name} | {adapter} | {servers(runs.tests[contract][cls])} |\n"
            name = ""
    rows = "".join(
        f"| {server} | `{test}` | {reason} |\n"
        for (server, test), reason in sorted(known_differences().items())
    )
    return text + DIFFERENCES + rows


def collect() -> Runs:
    """Collect the contracts' tests as `make test` does."""
    sys.path.insert(0, str(ROOT))
    runs = Runs()
    told = io.StringIO()
    arguments = ["--collect-only", "-qq", "-p", "no:cacheprovider", "-p", "no:xdist"]
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        imported = "-Wignore::pytest.PytestAssertRewriteWarning"  # plugins that other pages use
        code = pytest.main(
            [*arguments, imported, f"--rootdir={ROOT}", str(CONTRACTS)], plugins=[runs]
        )
    if code != pytest.ExitCode.OK:
        raise RunFailed(f"pytest could not collect {CONTRACTS}: {told.getvalue()[-2000:]}")
    return runs


def known_differences() -> dict[tuple[str, str], str]:
    """The list that the tests use."""
    from tests.contracts.servers import differences  # noqa: PLC0415 - collect() makes it findable

    return dict(differences.DIFFERENCES)


def contract_of(cls: type, test: str) -> type | None:
    """The contract that a class of tests has a test from, if from any."""
    for base in cls.__mro__:
        if test in vars(base):
            return base if base.__name__.endswith("Contract") else None
    return None


def server_of(item: Any) -> str:
    """The server that a test is run on, or none."""
    asked = [name for name in SERVER_FIXTURES if name in item.fixturenames]
    chosen = getattr(item, "callspec", None)
    kinds = [chosen.params.get(name, ONLY_SERVER) if chosen else ONLY_SERVER for name in asked]
    return " and ".join(dict.fromkeys(kinds))


def servers(tests: dict[str, set[str]]) -> str:
    """The servers of an adapter; a server that lacks tests of another one has them in part."""
    every = set().union(*tests.values())
    named = {server: names for server, names in tests.items() if server}
    if not named:
        return "none"
    return ", ".join(
        server if names | tests.get("", set()) == every else f"{server} (in part)"
        for server, names in named.items()
    )


def title(contract: type) -> str:
    """What a contract is about: TransactionLogContract is about a transaction log."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", contract.__name__.removesuffix("Contract"))
    return words.capitalize()


def adapter_of(cls: type) -> str:
    """What a class of tests tests: the first line of its docstring."""
    return (cls.__doc__ or cls.__name__).strip().splitlines()[0].rstrip(".")


def file_of(cls: type) -> str:
    """The file of a class."""
    return str(Path(inspect.getfile(cls)).resolve().relative_to(ROOT))


def line_of(cls: type) -> int:
    """Where a class begins."""
    return inspect.getsourcelines(cls)[1]

"""Runs what a Markdown page shows, and writes down what came out.

A page marks a block that is run with a comment on the line before it:

    <!-- run -->             a `console` block: `$ command`, and below it what it printed
    <!-- run may-fail -->    the same; a command may exit with an error
    <!-- run python -->      a `python` block; a `text` block after it holds what it printed

A command goes on in lines that begin with `> `.

The blocks of a page run one after the other in one empty folder, with variables kept from
block to block. The folder is shown as `/data`; `examples` in it is the repository's.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from warm_command import folder_of_program

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(
    r"(?P<marker>^<!-- run(?P<how> may-fail| python)? -->\n)"
    r"(?P<open>```(?:console|python)\n)(?P<body>.*?)(?P<close>^```\n)"
    r"(?P<printed>\n```text\n.*?^```\n)?",
    re.MULTILINE | re.DOTALL,
)
# What differs from run to run and from machine to machine. It is left out of comparisons,
# so a page changes only when something that a reader would notice has changed: of a time its form,
# of ids which of them are the same.
ID = re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b[0-9a-f]{8,}\b")
VARYING = [
    (r"\d{4}-\d\d-\d\d([T ])\d\d:\d\d(?::\d\d(?:\.\d+)?)?( ?UTC|Z|[+-]\d\d:\d\d)?", r"TIME\1\2"),
    (r"\d[\d.,]*( ?[kM])? (rows|keys)( a second|/s)", "RATE"),
    (r"\d[\d.,]* ?(ns|µs|us|ms|s|seconds|min|minutes)\b", "DURATION"),
    (r"\d[\d.,]* ?([kKMG]i?B|B|bytes)\b", "SIZE"),
    (r"[─━┄╌-]{2,}| {2,}", " "),
]


USER = {"SLEEPER_USER": "ann@laptop"}
"""Who runs what a page shows."""


class RunFailed(Exception):
    """A block that must work did not. The message holds the command and its output."""


@dataclass
class Session:
    """One reader at one terminal: a folder, the shell's variables, the names of Python."""

    folder: Path
    state: Path
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})

    def run_command(self, command: str, *, may_fail: bool) -> str:
        """Run one command in bash, where the last one ended; return all it printed."""
        script = (
            f"source '{self.state}'\n{command}\nstatus=$?\n"
            f"{{ export -p; echo \"cd '$PWD'\"; }} > '{self.state}'\nexit $status\n"
        )
        done = subprocess.run(
            ["bash", "-c", script],
            check=False,
            cwd=self.folder,
            env=terminal(),
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        if done.returncode and not may_fail:
            raise RunFailed(f"$ {command}\n{done.stdout}(exit code {done.returncode})")
        return self.shown(done.stdout)

    def run_python(self, code: str) -> str:
        """Run one block in this process; return what it printed."""
        printed = io.StringIO()
        os.environ |= USER
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(printed):
            exec(compile(code, "<page>", "exec"), self.names)
        return self.shown(printed.getvalue())

    def shown(self, output: str) -> str:
        """Show the folder under a name that fits every reader."""
        return output.replace(str(self.folder), "/data")


def terminal() -> dict[str, str]:
    """A plain terminal of 100 columns that finds this environment's programs first."""
    programs = (str(folder_of_program()), str(Path(sys.executable).parent), os.environ["PATH"])
    path = os.pathsep.join(programs)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SLEEPER_")}
    return (
        kept | USER | {"PATH": path, "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb", "TZ": "UTC"}
    )


def run_page(text: str) -> str:
    """The page with fresh outputs; as it was, if all of them say the same as before.

    All are of one run, so that an id which several blocks show is the same in each of them.

    Raises:
        RunFailed: A command exited with an error.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch).resolve() / "data"
        folder.mkdir()
        (folder / "examples").symlink_to(ROOT / "examples")
        state = folder.parent / "shell-state"
        state.touch()
        session = Session(folder, state)
        fresh = BLOCK.sub(lambda block: run_block(block, session), text)
    return text if steady(fresh) == steady(text) else fresh


def run_block(block: re.Match[str], session: Session) -> str:
    """Run one marked block again."""
    head = block["marker"] + block["open"]
    if block["how"] == " python":
        printed = session.run_python(block["body"])
        fresh = f"\n```text\n{tidy(printed)}```\n" if printed.strip() else ""
        return head + block["body"] + block["close"] + fresh
    may_fail = block["how"] == " may-fail"
    return head + run_console(block["body"], session, may_fail=may_fail) + block["close"]


def run_console(body: str, session: Session, *, may_fail: bool) -> str:
    """Keep the `$` lines and what continues them; run each; put its output below it."""
    fresh: list[str] = []
    for shown in re.findall(r"^\$ .*\n(?:^> .*\n)*", body, re.MULTILINE):
        command = "\n".join(line[2:] for line in shown.splitlines())
        fresh += [shown, tidy(session.run_command(command, may_fail=may_fail))]
    return "".join(fresh)


def tidy(output: str) -> str:
    """No space at the ends of lines, one newline at the end."""
    lines = [line.rstrip() for line in output.strip("\n").splitlines()]
    return "".join(f"{line}\n" for line in lines)


def steady(text: str) -> str:
    """The text without what differs from run to run."""
    ids: dict[str, str] = {}
    text = ID.sub(lambda found: ids.setdefault(found[0], f"ID{len(ids)}"), text)
    for pattern, name in VARYING:
        text = re.sub(pattern, name, text)
    return text

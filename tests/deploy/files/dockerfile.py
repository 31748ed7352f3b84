"""Reads a Dockerfile, and does its steps in a plain folder where there is no container daemon.

A step's absolute paths that the build makes are prefixed by the folder. What a base image has is
this machine's: its Python, its shell. Steps that would change this machine are refused.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from tests.contracts.servers.installed import left_out

MADE = ("sleeper", "source", "builder", "wheels", "var/lib/sleeper")
"""Folders of an image that builds make; no other place is written to."""
_MADE = re.compile(rf"(?<![\w./-])/({'|'.join(MADE)})(?=[/\s\"':]|$)")
_OF_MACHINES = re.compile(r"\b(apt-get|apt|dnf|yum|useradd|groupadd|chown|mount|curl|wget)\b")
_UNREACHED = re.compile(
    "Could not find a version|Max retries|connection|name resolution", re.IGNORECASE
)


@dataclass(frozen=True)
class Step:
    """One instruction, such as COPY, with its flags taken off."""

    name: str
    flags: dict[str, str]
    text: str

    @property
    def words(self) -> list[str]:
        """Its arguments."""
        return shlex.split(self.text)


@dataclass
class Stage:
    """What follows a FROM."""

    base: str
    name: str
    steps: list[Step] = field(default_factory=list)

    def last(self, name: str) -> str:
        """Return the argument of the last instruction of a name, or nothing."""
        return next((step.text for step in reversed(self.steps) if step.name == name), "")

    def environment(self) -> dict[str, str]:
        """Return what ENV sets, as it is written."""
        pairs = [word for step in self.steps if step.name == "ENV" for word in step.words]
        return dict(pair.split("=", 1) for pair in pairs)


def read_dockerfile(path: Path) -> tuple[dict[str, str], list[Stage]]:
    """Return the arguments before the first FROM, and the stages."""
    lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
    arguments, stages = {}, []
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if not line.strip():
            continue
        name, _, rest = line.strip().partition(" ")
        flags = {}
        while found := re.match(r"--(\w+)=(\S+)\s+", rest):
            flags[found[1]] = found[2]
            rest = rest[found.end() :]
        if name == "FROM":
            base, _, stage = rest.partition(" AS ")
            stages.append(Stage(base, stage or str(len(stages))))
        elif stages:
            stages[-1].steps.append(Step(name, flags, re.sub(r"\s+", " ", rest).strip()))
        else:
            key, _, value = rest.partition("=")
            arguments[key] = value
    return arguments, stages


@dataclass
class PlainBuild:
    """Does the steps of stages, one after the other, in `root`.

    Attributes:
        context: The folder that is built from.
        folder: Holds `root`, the file system of the stage at hand, and those of former stages.
        instead: Texts of commands, and what is run in their place.
    """

    context: Path
    folder: Path
    instead: dict[str, str] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        """The file system of the last stage."""
        return self.folder / "root"

    def run(self, stage: Stage) -> None:
        """Do the steps of a stage. A former stage keeps its files under its name."""
        self.root.mkdir()
        place, environment = self.root, self.environment(stage)
        for step in stage.steps:
            if step.name == "WORKDIR" and (made := self.at(step.text)):
                place = made
                place.mkdir(parents=True, exist_ok=True)
            if step.name == "COPY":
                self.copy(step, place)
            for folder in ("tmp", "var/lib"):  # which each base has
                (self.root / folder).mkdir(parents=True, exist_ok=True)
            if step.name == "RUN":
                self.shell(step, place, environment)

    def keep_as(self, name: str) -> None:
        """Put the files of the stage aside, for COPY --from."""
        self.root.rename(self.folder / name)

    def copy(self, step: Step, place: Path) -> None:
        """Copy files of the context, without those that .dockerignore names, or of a stage."""
        *sources, target = step.words
        made = self.at(target) or place / target
        for source in sources:
            if "from" in step.flags:
                start = self.folder / step.flags["from"] / source.lstrip("/")
            else:
                start = self.context / source
                assert is_in_context(self.context, source), f".dockerignore leaves out {source}"
            into = made / start.name if start.is_file() and target.endswith("/") else made
            into.parent.mkdir(parents=True, exist_ok=True)
            if start.is_dir():
                skipped = shutil.ignore_patterns("__pycache__")
                symbolic = "from" in step.flags
                shutil.copytree(
                    start,
                    into,
                    symlinks=symbolic,
                    ignore=None if symbolic else skipped,
                    copy_function=os.link if symbolic else shutil.copy2,  # files of a stage stay
                )
            else:
                shutil.copyfile(start, into)

    def shell(self, step: Step, place: Path, environment: dict[str, str]) -> None:
        """Run a command as /bin/sh does, in the folder."""
        assert not _OF_MACHINES.search(step.text), f"this would change the machine: {step.text}"
        command = self.placed(step.text)
        for text, other in self.instead.items():
            command = command.replace(self.placed(text), self.placed(other))
        done = subprocess.run(
            ["/bin/sh", "-euc", command],
            cwd=place,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode and _UNREACHED.search(done.stderr):
            left_out("image", f"pip reached no registry: {done.stderr[-300:]}")
        assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"

    def environment(self, stage: Stage) -> dict[str, str]:
        """Return the variables of a stage. `python3` is the Python that this one was made from."""
        python = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
        tools = self.folder / "tools"
        tools.mkdir(exist_ok=True)
        if not (tools / "python3").exists():
            (tools / "python3").symlink_to(python)
        path = f"{tools}:{os.defpath}"
        kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        kept |= {name: os.environ[name] for name in ("HOME",) if name in os.environ}
        given = {
            name: self.placed(value).replace("${PATH}", path)
            for name, value in stage.environment().items()
        }
        return {"PATH": path, **kept, **given}

    def at(self, path: str) -> Path | None:
        """Return where a path of the image is here, or None if no build makes it."""
        placed = self.placed(path)
        return Path(placed) if placed != path else None

    def placed(self, text: str) -> str:
        """Put the folder before the paths that builds make."""
        return _MADE.sub(lambda found: f"{self.root}/{found[1]}", text)


def is_in_context(context: Path, name: str) -> bool:
    """Tell whether .dockerignore leaves a file or folder of the root in the context."""
    kept = True
    for line in (context / ".dockerignore").read_text().split("\n"):
        rule = line.strip()
        if rule and not rule.startswith(("#", "**")) and fnmatch(name, rule.lstrip("!")):
            kept = rule.startswith("!")
    return kept

"""How `sleeper` ends: exit codes, where messages go, and help; some of it as a real process."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.errors import BadRequest, CommitContended, StorageFull
from sleeper.interfaces.cli import init as init_command
from sleeper.interfaces.cli.main import cli
from sleeper.interfaces.cli.stderr import EXIT_CODES, Terminated
from tests.patience import PATIENCE_S
from tests.unit.interfaces.command_line import ROWS, make_trips, sleeper, write_rows

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = [
    sys.executable,
    "-W",
    "error",
    "-c",
    "from sleeper.interfaces.cli.main import main; main()",
]


def environment(**more: str) -> dict[str, str]:
    path = os.pathsep.join(filter(None, sys.path))
    return {**os.environ, "PYTHONPATH": path, "NO_COLOR": "1", **more}


def run(*arguments: str | bytes, **more):
    """Run `sleeper` as a process of its own."""
    return subprocess.run(
        [*PROGRAM, *arguments], check=False, capture_output=True, env=environment(), **more
    )


def while_a_class_is_made(signal_error: BaseException) -> BaseException:
    """What Python raises for a signal that comes at an import, while `__set_name__` runs."""

    class Field:
        def __set_name__(self, owner, name):
            raise signal_error

    with pytest.raises((RuntimeError, type(signal_error))) as raised:
        type("Made", (), {"field": Field()})
    return raised.value


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """An instance with a table of rows enough to fill a pipe."""
    folder = tmp_path_factory.mktemp("ends")
    made = make_trips(folder)
    many = pa.table(
        {"taxi": ["k"] * 30_000, "day": range(30_000), "at": range(30_000), "fare": [1.0] * 30_000}
    )
    pq.write_table(many, folder / "many.parquet")
    assert sleeper("ingest", "trips", folder / "many.parquet", "--instance", made).exit_code == 0
    return made


def commands(command: click.Command, context: click.Context):
    """Yield each command as it is typed, groups too."""
    yield context.command_path.split()[1:], command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            yield from commands(child, click.Context(child, info_name=name, parent=context))


COMMANDS = list(commands(cli, click.Context(cli, info_name="sleeper", **cli.context_settings)))


class TestHelp:
    """What each command says about itself."""

    @pytest.mark.parametrize(("path", "command"), COMMANDS, ids=str)
    def test_shows_an_example(self, path, command):
        """Every command's help has one that starts with its own name."""
        shown = sleeper(*path, "--help")

        assert shown.exit_code == 0
        assert "Example" in shown.stdout
        assert " ".join(["sleeper", *path]) in shown.stdout.split("Example")[1]

    def test_every_option_is_explained(self):
        """No option goes without a word."""
        silent = [
            (path, option.name)
            for path, command in COMMANDS
            for option in command.params
            if isinstance(option, click.Option) and not option.help
        ]

        assert silent == []

    def test_short_forms(self):
        """-h is --help; --version says one."""
        assert sleeper("table", "add", "-h").stdout == sleeper("table", "add", "--help").stdout
        assert sleeper("--version").stdout.startswith("sleeper")


class TestExitCodes:
    """0 done; 1 refused; 2 wrong use; 75 try again; 130 interrupted; 143 SIGTERM."""

    @pytest.mark.parametrize(
        ("arguments", "code"),
        [
            (["table", "list"], 0),
            (["report"], 0),
            (["report", "--json"], 0),
            (["query", "nothing-here"], 1),
            (["table"], 2),
            (["tables"], 2),
            (["query"], 2),
            (["query", "trips", "--no-such-option"], 2),
            (["table", "add", "t"], 2),
        ],
    )
    def test_a_code_says_how_it_ended(self, url, arguments, code):
        """Messages of refusals and of wrong use go to stderr, and stdout stays empty."""
        done = sleeper(*arguments, env={"SLEEPER_INSTANCE": url})

        assert done.exit_code == code
        assert bool(done.stderr) == bool(code)
        assert not code or done.stdout == ""

    @pytest.mark.parametrize(
        ("error", "code"),
        [
            (CommitContended("others were first"), 75),
            (StorageFull("the disk is full"), 75),
            (KeyboardInterrupt(), 130),
            (Terminated(), 143),
            (while_a_class_is_made(Terminated()), 143),
            (while_a_class_is_made(KeyboardInterrupt()), 130),
            (click.Abort(), 130),
            (PermissionError(13, "Permission denied", "schema.json"), 1),
        ],
    )
    def test_a_schedule_may_try_again_where_that_helps(self, monkeypatch, error, code):
        """75 is for what may succeed later; the message is the error's own."""

        def fail(*_, **__):
            raise error

        monkeypatch.setattr(init_command, "create_instance", fail)

        done = sleeper("init", "/nowhere/at/all")

        assert (done.exit_code, done.stdout) == (code, "")
        assert done.stderr.startswith("sleeper: ") or "\nsleeper: " in done.stderr

    def test_each_is_in_the_table_and_on_the_page(self):
        """The page for people who write scripts has a line for each."""
        page = (ROOT / "docs" / "guide" / "first-table.md").read_text()

        assert sorted(EXIT_CODES) == [0, 1, 2, 75, 130, 143]
        for code, meaning in EXIT_CODES.items():
            assert f"| {code} | {meaning} |" in page

    def test_an_instance_must_be_named(self, monkeypatch):
        """By --instance, or SLEEPER_INSTANCE; an empty one names nothing."""
        for env in ({"SLEEPER_INSTANCE": ""}, {"SLEEPER_INSTANCE": None}):
            done = sleeper("table", "list", env=env)

            assert done.exit_code == 2
            assert (
                "Missing option '--instance' (or the environment variable SLEEPER_" in done.stderr
            )

    def test_a_misspelt_command_is_named(self):
        """Like a misspelt command of a group."""
        for wrong, near in (("querry", "query"), ("ingst", "ingest")):
            done = sleeper(wrong, "trips")

            assert done.exit_code == 2
            assert f"No such command '{wrong}'. Did you mean '{near}'?" in done.stderr
        assert "Did you mean" not in sleeper("fetch").stderr

    def test_no_instance_at_all(self, tmp_path):
        """The message says how to make one, and none is made."""
        done = sleeper("table", "list", "--instance", tmp_path / "x")

        assert done.exit_code == 1
        assert f"sleeper init {tmp_path / 'x'}" in done.stderr
        assert not (tmp_path / "x").exists()

    def test_an_option_wins_over_the_environment(self, url, tmp_path):
        """--instance names another one than SLEEPER_INSTANCE."""
        sleeper("init", tmp_path / "other")

        done = sleeper(
            *("table", "list", "--instance", tmp_path / "other"), env={"SLEEPER_INSTANCE": url}
        )

        assert (done.exit_code, done.stdout) == (0, "")


class TestAsAProcess:
    """What only a real process shows."""

    def test_runs_and_refuses(self, url):
        """Rows on stdout, errors on stderr, no warnings, no traceback."""
        found = run("query", "trips", "--key", "taxi=m", "--json", "--instance", url)
        refused = run("query", "nothing-here", "--instance", url)

        assert (found.returncode, found.stderr) == (0, b"")
        assert found.stdout == b'{"taxi":"m","day":1,"at":30,"fare":3.0}\n'
        assert (refused.returncode, refused.stdout) == (1, b"")
        assert refused.stderr.startswith(b"sleeper: no table 'nothing-here'")

    def test_runs_as_a_module(self, url):
        """`python -m sleeper`, where no script is on the path."""
        done = subprocess.run(
            [sys.executable, "-m", "sleeper", "table", "list", "--json", "--instance", url],
            check=False,
            capture_output=True,
            env=environment(),
        )

        assert (done.returncode, done.stderr) == (0, b"")
        assert b'"trips"' in done.stdout

    @pytest.mark.parametrize("form", ["json", "csv", "table"])
    def test_a_reader_may_stop_reading(self, url, form):
        """`| head` ends the command quietly, with code 0."""
        shown = subprocess.Popen(
            [*PROGRAM, "query", "trips", "--all", "--format", form, "--instance", url],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert shown.stdout.readline()
        shown.stdout.close()

        assert shown.wait(PATIENCE_S) == 0
        assert shown.stderr.read() == b""
        shown.stderr.close()

    def test_a_full_disk_behind_stdout_is_told(self, url):
        """Output that did not arrive is no success."""
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                [*PROGRAM, "report", "tables", "--instance", url],
                check=False,
                env=environment(),
                stdout=full,
                stderr=subprocess.PIPE,
            )

        assert done.returncode == 1
        assert done.stderr == b"sleeper: No space left on device\n"

    def test_arguments_that_are_not_utf8(self, tmp_path):
        """A folder of any name can be an instance; what is printed of it is an escape."""
        made = run("init", os.fsencode(tmp_path) + b"/inst-\xff")

        assert (made.returncode, made.stderr) == (0, b"")
        assert b"inst-\\udcff" in made.stdout
        assert (tmp_path / os.fsdecode(b"inst-\xff") / "instance.properties").exists()

    @pytest.mark.parametrize(
        ("patched", "command"),
        [
            ("user_file", ["query", "trips", "--output", "out.parquet"]),
            ("export", ["export", "trips", "out"]),
        ],
    )
    def test_sigterm_leaves_no_unfinished_file(self, url, tmp_path, patched, command):
        """It ends with 143, and what was being written is deleted."""
        program = (
            "import time\n"
            f"from sleeper.engine.writing import {patched}\n"
            "from sleeper.interfaces.cli.main import main\n"
            "def slow(rows, file, form):\n"
            "    file.write(b'half')\n"
            "    print('writing', flush=True)\n"
            "    time.sleep(60)\n"
            f"{patched}.stream_rows = slow\n"
            "main()\n"
        )
        started = subprocess.Popen(
            [sys.executable, "-c", program, *command, "--instance", url],
            cwd=tmp_path,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert started.stdout.readline() == b"writing\n"
        assert list(tmp_path.iterdir()) != []

        started.send_signal(signal.SIGTERM)
        _, said = started.communicate(timeout=PATIENCE_S)

        assert (started.returncode, list(tmp_path.iterdir())) == (143, [])
        assert said.endswith(b"sleeper: ended by SIGTERM; nothing more was changed\n")

    def test_a_question_may_be_interrupted(self, url):
        """Ctrl-C ends with 130; the table is as it was."""
        before = sleeper("report", "files", "trips", "--json", "--instance", url).stdout
        started = subprocess.Popen(
            [*PROGRAM, "table", "delete", "trips", "--instance", url],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        while b"[y/N]" not in (asked := started.stderr.read1()):
            assert started.poll() is None, asked

        started.send_signal(signal.SIGINT)
        _, message = started.communicate(timeout=PATIENCE_S)

        assert started.returncode == 130
        assert message.endswith(b"sleeper: interrupted; nothing more was changed\n")
        assert sleeper("report", "files", "trips", "--json", "--instance", url).stdout == before


def test_names_that_are_not_utf8(url, tmp_path):
    """Files of any name are read and written; names of tables must be text."""
    source = tmp_path / os.fsdecode(b"rows-\xff.parquet")
    write_rows(tmp_path / "rows.parquet", ROWS[:1]).rename(source)
    output = tmp_path / os.fsdecode(b"found-\xfe.json")
    table = os.fsdecode(b"tr\xffips")

    added = sleeper("ingest", "trips", source, "--instance", url)
    found = sleeper("query", "trips", "--key", "taxi=m", "--output", output, "--instance", url)
    refused = sleeper("table", "rename", "trips", table, "--instance", url)
    unknown = sleeper("query", table, "--instance", url)

    assert (added.exit_code, added.stderr) == (0, "")
    assert (found.exit_code, output.exists()) == (0, True)
    assert "found-\\udcfe.json" in found.stderr
    assert refused.exit_code == unknown.exit_code == 1
    assert "'tr\\udcffips' cannot be a table's name" in refused.stderr
    assert "no table 'tr\\udcffips'" in unknown.stderr


def test_what_is_done_is_logged_if_asked(monkeypatch):
    """Warnings come in any case; -v says more, -vv every step, and a line may be JSON."""
    logger = logging.getLogger("sleeper.operations.create_instance")

    def speak(*_, **__):
        logger.warning("one")
        logger.info("two")
        logger.debug("three")
        raise BadRequest("end")

    monkeypatch.setattr(init_command, "create_instance", speak)

    def said(*options):
        return sleeper(*options, "init", "/nowhere/at/all").stderr.splitlines()[:-1]

    assert said() == ["sleeper: warning: one"]
    assert said("-v") == ["sleeper: warning: one", "sleeper: info: two"]
    assert said("-vv")[2:] == ["sleeper: debug: three"]
    lines = [json.loads(line) for line in said("-v", "--log-format", "json")]
    assert [(line["level"], line["message"]) for line in lines] == [
        ("WARNING", "one"),
        ("INFO", "two"),
    ]
    assert logger.parent.handlers == []

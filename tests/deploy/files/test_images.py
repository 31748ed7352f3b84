"""deploy/images: Dockerfiles that a linter accepts, and whose steps make what they should."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import pytest

from tests.contracts.servers.running import answers, free_port, running
from tests.deploy.files.dockerfile import PlainBuild, is_in_context, read_dockerfile
from tests.deploy.files.programs import ROOT, as_other_user, give, lambda_runtime, run
from tests.patience import PATIENCE_S, becomes_true
from tests.soak import SOAK

IMAGES = ROOT / "deploy" / "images"
FILES = sorted(IMAGES.rglob("Dockerfile"))
WORKER = IMAGES / "worker" / "Dockerfile"
SPARK = IMAGES / "spark" / "Dockerfile"
SIZE_MAX_MB = 480

# Modules of packages are compiled under `make soak` alone: it takes ten seconds of a processor.
LESS = {} if SOAK else {"unchecked-hash /sleeper/lib": "unchecked-hash /sleeper/bin"}

each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)


class TestDockerfiles:
    """Every Dockerfile."""

    @each_file
    def test_is_accepted_by_hadolint(self, path):
        """The linter has nothing to say."""
        hadolint = Path(sys.executable).with_name("hadolint")

        done = subprocess.run([hadolint, path], capture_output=True, text=True, check=False)

        assert (done.returncode, done.stdout) == (0, "")

    @each_file
    def test_fixes_the_version_of_each_base(self, path):
        """A base is an argument, so that a digest can be given; its default has a version."""
        arguments, stages = read_dockerfile(path)
        bases = {stage.base for stage in stages}

        assert bases == {f"${{{name}}}" for name in arguments}
        for name, base in arguments.items():
            release = re.search(r"\d+\.\d+\.\d+", base)
            assert release, f"{name}={base} has no version"
            assert not base.endswith(":latest") or release.start() < base.index(":latest")

    @each_file
    def test_runs_as_an_ordinary_user_and_stops_by_a_signal(self, path):
        """The last stage names a user by number, and SIGTERM as what ends it."""
        last = read_dockerfile(path)[1][-1]

        assert int(last.last("USER").partition(":")[0]) > 0
        assert last.last("STOPSIGNAL") == "SIGTERM"
        assert "org.opencontainers.image.version" in last.last("LABEL")

    @each_file
    def test_leaves_what_builds_behind(self, path):
        """The last stage copies what the first has made, and makes a folder at most."""
        last = read_dockerfile(path)[1][-1]

        assert {step.words[0] for step in last.steps if step.name == "RUN"} <= {"mkdir"}
        assert all("from" in step.flags for step in last.steps if step.name == "COPY")

    @each_file
    def test_installs_packages_by_hash_alone(self, path):
        """Each installation has hashes, or takes the wheel that was made and nothing else."""
        steps = [step.text for stage in read_dockerfile(path)[1] for step in stage.steps]
        installs = [
            part for text in steps for part in text.split("&&") if " install " in f"{part} "
        ]

        assert installs
        for part in installs:
            assert "--require-hashes" in part or "--no-index" in part

    def test_have_the_version_of_the_package(self):
        """A release changes both in one step."""
        version = re.search(
            r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE
        )[1]

        assert {
            found for path in FILES for found in re.findall(r"ARG VERSION=(.*)", path.read_text())
        } == {version}


class TestContext:
    """.dockerignore: what a build is sent."""

    def test_holds_what_the_steps_copy_and_nothing_else(self):
        """Secrets, instances and virtual environments of a clone stay where they are."""
        kept = {path.name for path in ROOT.iterdir() if is_in_context(ROOT, path.name)}

        assert kept == {"LICENSE", "README.md", "pyproject.toml", "src"}


class TestRequirements:
    """requirements/image.txt and spark-image.txt."""

    @pytest.mark.parametrize(
        ("image", "more"),
        [("image", {"awslambdaric"}), ("spark-image", {"awslambdaric", "pandas"})],
    )
    def test_have_what_the_extras_need_in_the_versions_of_tests(self, image, more):
        """What the image has is what tests ran with; Spark's has pandas, which Spark asks for."""
        pins = {
            name: dict(
                re.findall(
                    r"^([\w.-]+)==([\w.]+)",
                    (ROOT / f"requirements/{name}.txt").read_text(),
                    re.MULTILINE,
                )
            )
            for name in (image, "dev")
        }
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        extras = project["optional-dependencies"]
        asked = {
            item.split(">=")[0] for extra in ("aws", "server", "client") for item in extras[extra]
        }

        assert asked | more <= pins[image].keys()
        assert pins[image].items() <= pins["dev"].items()


def roomy_memory() -> Path | None:
    """Return a folder in memory where there is room for an image: its files are many."""
    folder = Path("/dev/shm")
    has_room = folder.is_dir() and shutil.disk_usage(folder).free > 4 * SIZE_MAX_MB << 20
    return folder if has_room else None


@pytest.fixture(scope="module")
def image():
    """The worker's image as a folder, made by the Dockerfile's own steps."""
    with tempfile.TemporaryDirectory(prefix="sleeper-image-", dir=roomy_memory()) as name:
        folder = Path(name)
        folder.chmod(0o755)
        build = PlainBuild(ROOT, folder, instead=LESS)
        _, (made, final) = read_dockerfile(WORKER)
        build.run(made)
        build.keep_as(made.name)
        build.run(final)
        given = {
            name: build.placed(value).replace("${PATH}", "/usr/bin:/bin")
            for name, value in final.environment().items()
        }
        writable = give(folder / "writable")
        yield build.root, {**given, "HOME": str(writable), "TMPDIR": str(writable)}, writable


class TestWorkerImage:
    """The steps of deploy/images/worker, done in a plain folder."""

    def test_has_sleeper_and_no_builder(self, image):
        """Neither pip nor what makes wheels is in it, nor tests of packages; its size is known."""
        root, _, _ = image
        (packages,) = root.glob("sleeper/lib/python*/site-packages")
        names = {path.name for path in packages.iterdir()}
        size_mb = sum(path.lstat().st_size for path in root.rglob("*") if not path.is_symlink()) / (
            1 << 20
        )

        assert {"sleeper", "awslambdaric", "boto3", "fastapi", "httpx"} <= names
        assert names & {"pip", "setuptools", "hatchling", "wheel", "pytest"} == set()
        assert [path for path in packages.rglob("tests") if path.is_dir()] == []
        assert size_mb < SIZE_MAX_MB

    def test_knows_each_service_of_aws_that_sleeper_calls(self, image):
        """Descriptions of others are left out, so those that the code names are asked for."""
        _, environment, writable = image
        named = re.compile(r'(?:client\(|aws_client, |service=)\s*"([a-z0-9-]+)"')
        texts = [path.read_text() for path in (ROOT / "src/sleeper").rglob("*.py")]
        services = {"service-quotas", *(each for text in texts for each in named.findall(text))}
        code = (
            "import boto3, sys\n"
            "for name in sys.argv[1:]:\n"
            "    boto3.client(name, region_name='eu-west-2')\n"
        )

        done = run(["python", "-c", code, *sorted(services)], environment, writable)

        assert {"dynamodb", "ecs", "emr-serverless", "s3", "sqs", "stepfunctions"} <= services
        assert done.returncode == 0, done.stderr

    def test_writes_and_reads_a_table(self, image):
        """Given libraries without their symbols, then rows are sorted, merged and found."""
        _, environment, writable = image
        code = (
            "import polars, sleeper, sys\n"
            "rows = polars.DataFrame({'id': range(1000), 'text': map(str, range(1000))})\n"
            "table = sleeper.create_instance(sys.argv[1]).create_table('t', rows, row_keys=['id'])\n"
            "table.ingest(rows.reverse())\n"
            "print(table.query(key=77).to_pylist(), table.sql('select max(id) m from t').to_pylist())\n"
        )

        done = run(["python", "-c", code, str(writable / "rows")], environment, writable)

        assert done.stdout == "[{'id': 77, 'text': '77'}] [{'m': 999}]\n", done.stderr

    def test_runs_as_a_user_who_may_write_to_the_temp_folder_alone(self, image):
        """`sleeper` works where the root file system is read-only and the user has no name."""
        root, environment, writable = image
        instance = str(writable / "demo")

        version = run(["sleeper", "--version"], environment, writable)
        made = run(["sleeper", "init", instance], environment, writable)
        served = run(["sleeper", "serve", "--once", "--instance", instance], environment, writable)
        touched = run(["touch", str(root / "sleeper" / "file")], environment, writable)

        assert version.stdout.startswith("sleeper ")
        assert (made.returncode, served.returncode) == (0, 0), made.stderr + served.stderr
        assert touched.returncode != 0 or as_other_user([]) == []

    def test_serves_by_rest(self, image):
        """`sleeper server start` answers, and has its page."""
        _, environment, writable = image
        run(["sleeper", "init", str(writable / "served")], environment, writable)
        port = free_port()
        command = ["sleeper", "server", "start", "--instance", str(writable / "served")]
        command += ["--listen", f"127.0.0.1:{port}"]
        cleaned = dict.fromkeys(("PYTHONPATH", "PYTHONHOME"), "") | environment

        with running(
            as_other_user(command),
            lambda: answers(f"http://127.0.0.1:{port}/page"),
            writable / "server.log",
            cleaned,
            PATIENCE_S,
        ):
            log = (writable / "server.log").read_text()

        assert "serving at" in log

    def test_runs_a_lambda(self, image):
        """Lambda's client runs a function of the package, and sends its answer."""
        _, environment, writable = image
        (writable / "tried.py").write_text(
            "import sleeper\n"
            "def handler(event, context):\n"
            "    return {'asked': event, 'module': sleeper.__name__}\n"
        )
        with lambda_runtime({"kinds": ["ingest"]}) as (address, sent):
            process = subprocess.Popen(
                as_other_user(["python", "-m", "awslambdaric", "tried.handler"]),
                env={**environment, "AWS_LAMBDA_RUNTIME_API": address}
                | {"AWS_LAMBDA_FUNCTION_NAME": "tried", "LAMBDA_TASK_ROOT": str(writable)},
                cwd=writable,
            )
            try:
                becomes_true(lambda: sent or process.poll() is not None)
            finally:
                process.kill()
                process.wait()

        assert [answer["body"] for answer in sent] == [
            {"asked": {"kinds": ["ingest"]}, "module": "sleeper"}
        ]


@pytest.mark.soak
@pytest.mark.skipif(not SOAK, reason="make soak tries it")
def test_spark_packages_run_in_a_plain_python(tmp_path):
    """The folder of packages that both images of Spark take has the entry script, which runs."""
    build = PlainBuild(ROOT, tmp_path)
    made = read_dockerfile(SPARK)[1][1]

    build.run(made)
    environment = {"PYTHONPATH": str(build.root / "sleeper/packages"), "PATH": "/usr/bin:/bin"}
    python = str(tmp_path / "tools" / "python3")
    entry = str(build.root / "sleeper/sleeper_bulk_import.py")
    done = run([python, entry, "--help"], environment, tmp_path)

    pandas = run([python, "-c", "import pandas"], environment, tmp_path)

    assert "JOB" in done.stdout, done.stderr
    assert pandas.returncode == 0, pandas.stderr

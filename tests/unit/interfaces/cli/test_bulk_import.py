"""`sleeper bulk-import`: rows in here, requests for clusters, and wrong use of its options."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from sleeper.instance.instance import Instance
from sleeper.interfaces.bulk_import_job import main as run_driver
from tests.unit.interfaces.command_line import (
    ROWS,
    json_of,
    make_trips,
    rows_of,
    sleeper,
    write_rows,
)

ROLE = "arn:aws:iam::123456789012:role/jobs"
SERVERLESS = (
    *("--submit", "emr-serverless", "--application-id", "00abc", "--execution-role", ROLE),
    *("--environment", "s3://bucket/env/"),
)
FAR = "s3://bucket/more.parquet"
MORE = [
    {"taxi": "b", "day": 2, "at": 50, "fare": 2.0},
    {"taxi": "x", "day": 3, "at": 60, "fare": 0},
]


@pytest.fixture
def url(tmp_path, monkeypatch):
    """An instance with the table trips, which the environment names."""
    made = make_trips(tmp_path)
    monkeypatch.setenv("SLEEPER_INSTANCE", made)
    sleeper("table", "set", "trips", "sleeper.table.bulk.import.min.leaf.partitions=1")
    return made


@pytest.fixture
def more(tmp_path) -> Path:
    """A file of two rows more."""
    return write_rows(tmp_path / "more.parquet", MORE)


@pytest.fixture
def in_bucket(monkeypatch) -> str:
    """The URL that instances have from here on, wherever they are: that of a bucket."""
    place = "s3://bucket/instance"
    before = Instance.submitted_jobs.fget
    moved = property(lambda self: replace(before(self), url=place, inputs=None))
    monkeypatch.setattr(Instance, "submitted_jobs", moved)
    return place


def saved_jobs(url: str) -> list[Path]:
    """What was saved for drivers."""
    return sorted(Path(url).glob("bulk_import/*.json"))


class TestHere:
    """Without --submit."""

    def test_says_which_engine_and_why(self, url, more):
        """Then what was added; a few rows need no Spark."""
        done = sleeper("bulk-import", "trips", more)

        assert (done.exit_code, done.stderr) == (0, ""), done.output
        first, *_, last = done.stdout.splitlines()
        assert first.startswith("engine local: ")
        assert last.startswith("imported 2 rows into trips: 2 files, 2 partitions, ")
        assert "transaction" in last

    def test_settings_that_spark_does_not_have_are_refused(self, url, more):
        """All of them, whichever engine would run; nothing is added (BLK-2)."""
        done = sleeper(
            *("bulk-import", "trips", more, "--job-id", "june", "--conf", "spark.drivr.memory=2g"),
            *("--conf", "spark.sql.shuffle.partitions=many"),
        )

        assert done.exit_code == 1
        assert "spark.drivr.memory is no setting of Spark; did you mean spark.driver.memory?" in (
            done.stderr
        )
        assert "partitions is 'many', but it must be a whole number" in done.stderr
        assert len(rows_of(sleeper("query", "trips", "--json"))) == len(ROWS)

    def test_a_repeated_job_changes_nothing(self, url, more):
        """Its id tells."""
        first = sleeper("bulk-import", "trips", more, "--job-id", "june", "--json")
        again = sleeper("bulk-import", "trips", more, "--job-id", "june")

        assert json_of(first)["rows_written"] == 2
        assert "job june was committed by transaction" in again.stdout
        assert len(rows_of(sleeper("query", "trips", "--json"))) == len(ROWS) + 2

    def test_a_job_as_upstream_writes_it(self, url, more, tmp_path):
        """Table, files and id come from the file."""
        job = tmp_path / "job.json"
        job.write_text(json.dumps({"id": "june", "tableName": "trips", "files": [str(more)]}))

        done = sleeper("bulk-import", "--job", job, "--engine", "local", "--json")

        assert (json_of(done)["job_id"], json_of(done)["engine"]) == ("june", "local")

    @pytest.mark.parametrize("blank", ["", "  "])
    def test_a_blank_id_of_a_job_is_none(self, url, more, tmp_path, blank):
        """As upstream's messages have it; a second one is not taken for the first."""
        job = tmp_path / "job.json"
        job.write_text(json.dumps({"id": blank, "tableName": "trips", "files": [str(more)]}))

        done = [json_of(sleeper("bulk-import", "--job", job, "--json")) for _ in range(2)]

        assert [each["already_committed"] for each in done] == [False] * 2
        assert len({each["job_id"] for each in done}) == 2

    @pytest.mark.parametrize("blank", ["", "  "])
    @pytest.mark.parametrize(
        "command", ["ingest trips", "bulk-import trips", "jobs submit trips"], ids=lambda each: each
    )
    def test_a_blank_id_on_the_command_line_is_refused(self, url, more, command, blank):
        """It comes of a variable that is empty, and would not keep rows from coming twice."""
        option = "--id" if command.startswith("jobs") else "--job-id"

        refused = sleeper(*command.split(), more, option, blank)

        assert (refused.exit_code, refused.stdout) == (1, "")
        assert "job_id is blank: give a text that names this work" in refused.stderr
        assert rows_of(sleeper("query", "trips", "--json")) == ROWS

    def test_rows_without_a_key_are_set_aside(self, url, tmp_path):
        """And counted."""
        odd = write_rows(
            tmp_path / "odd.parquet", [*MORE, {"taxi": None, "day": 1, "at": 1, "fare": 1.0}]
        )
        aside = tmp_path / "aside.parquet"

        refused = sleeper("bulk-import", "trips", odd)
        done = sleeper("bulk-import", "trips", odd, "--set-aside", aside, "--engine", "local")

        assert refused.exit_code == 1
        assert f"set aside 1 row without a key in {aside}" in done.stdout

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("{", "Error parsing JSON. Reason: "),
            ('{"files": ["x"]}', "Table not found: none was named"),
            ('{"tableId": "gone", "files": []}', "Table not found: gone; The input files must be"),
            ('{"tableName": "trips", "files": [null]}', "One of the files was null"),
        ],
    )
    def test_a_job_that_cannot_be_run(self, url, tmp_path, text, message):
        """Is refused with every reason."""
        (tmp_path / "job.json").write_text(text)

        done = sleeper("bulk-import", "--job", tmp_path / "job.json")

        assert (done.exit_code, done.stdout) == (1, "")
        assert message in done.stderr


class TestDryRun:
    """--submit with --dry-run prints the request and does nothing."""

    def test_emr_serverless(self, url, in_bucket):
        """The call, the job and where it would be saved, as JSON."""
        shown = json_of(
            sleeper(
                *(
                    "bulk-import",
                    "trips",
                    FAR,
                    "--job-id",
                    "june",
                    "--conf",
                    "spark.a=b",
                    *SERVERLESS,
                ),
                *("--ignore-extra-columns", "--region", "eu-west-2", "--dry-run"),
            )
        )

        submit = shown["request"]["parameters"]["jobDriver"]["sparkSubmit"]
        assert shown["platform"] == "emr-serverless"
        assert shown["job"] == {
            "id": "june",
            "tableName": "trips",
            "files": [FAR],
            "sparkConf": {"spark.a": "b"},
        }
        assert shown["job_place"].startswith("bulk_import/june-")
        assert shown["request"]["region"] == "eu-west-2"
        assert submit["entryPointArguments"] == [
            *(shown["job_place"], "--instance", in_bucket, "--ignore-extra-columns")
        ]
        assert "spark.a=b" in submit["sparkSubmitParameters"]
        assert "at most 36 executors of 4 vCPU" in shown["notes"][0]
        assert saved_jobs(url) == []

    def test_emr_with_a_jobs_own_machines(self, url, in_bucket, tmp_path):
        """A cluster for the job; --cluster-id makes it a step."""
        job = tmp_path / "job.json"
        spec = {"sleeper.table.bulk.import.emr.executor.max.capacity": "3"}
        job.write_text(json.dumps({"tableName": "trips", "files": [FAR], "platformSpec": spec}))
        asked = ("bulk-import", "--job", job, "--submit", "emr", "--environment", "s3://b/e")

        cluster = json_of(sleeper(*asked, "--subnet", "s-1", "--subnet", "s-2", "--dry-run"))
        step = json_of(sleeper(*asked, "--cluster-id", "j-1", "--dry-run"))

        limits = cluster["request"]["parameters"]["ManagedScalingPolicy"]["ComputeLimits"]
        assert limits["MaximumCapacityUnits"] == 3
        assert cluster["request"]["parameters"]["Instances"]["Ec2SubnetIds"] == ["s-1", "s-2"]
        assert step["request"]["operation"] == "add_job_flow_steps"

    def test_kubernetes(self, url, in_bucket):
        """A command with the image."""
        shown = json_of(
            sleeper(
                *("bulk-import", "trips", FAR, "--submit", "kubernetes", "--dry-run"),
                *("--master", "k8s://https://host:6443", "--image", "sleeper:1"),
            )
        )

        assert "spark.kubernetes.container.image=sleeper:1" in shown["request"]["argv"]

    def test_spark_submit(self, url, more):
        """The command runs the driver with this Python; the job's id is random."""
        shown = json_of(
            sleeper("bulk-import", "trips", more, "--submit", "spark-submit", "--dry-run")
        )

        argv = shown["request"]["argv"]
        assert Path(argv[0]).name == "spark-submit"
        assert argv[1:3] == ["--master", "local[*]"]
        assert f"spark.pyspark.driver.python={sys.executable}" in argv
        assert any(part.endswith("bulk_import_job.py") for part in argv)

    def test_an_instance_may_know_its_clusters(self, tmp_path, in_bucket, monkeypatch):
        """Upstream's deployment writes ids and roles into the instance's properties."""
        monkeypatch.setenv("SLEEPER_INSTANCE", make_known(tmp_path))
        asked = ("bulk-import", "trips", FAR, "--environment", "s3://b/e", "--dry-run")

        serverless = json_of(sleeper(*asked, "--submit", "emr-serverless"))
        emr = json_of(sleeper(*asked, "--submit", "emr"))

        assert serverless["request"]["parameters"]["applicationId"] == "00known"
        assert serverless["request"]["parameters"]["executionRoleArn"] == ROLE
        assert emr["request"]["parameters"]["ServiceRole"] == "known-role"

    def test_a_clusters_disks_and_doors_are_the_instances(self, tmp_path, in_bucket, monkeypatch):
        """Upstream's properties for disks, SSH and security reach the cluster that is made."""
        monkeypatch.setenv("SLEEPER_INSTANCE", make_known(tmp_path))

        asked = ("bulk-import", "trips", FAR, "--environment", "s3://b/e", "--dry-run")
        emr = json_of(sleeper(*asked, "--submit", "emr"))["request"]["parameters"]

        assert emr["SecurityConfiguration"] == "encrypted"
        assert emr["Instances"]["Ec2KeyName"] == "ours"
        assert emr["Instances"]["AdditionalMasterSecurityGroups"] == ["sg-1"]
        driver, executors = emr["Instances"]["InstanceFleets"]
        assert "EbsConfiguration" not in driver["InstanceTypeConfigs"][0]
        assert executors["InstanceTypeConfigs"][0]["EbsConfiguration"] == {
            "EbsOptimized": True,
            "EbsBlockDeviceConfigs": [
                {
                    "VolumeSpecification": {"SizeInGB": 100, "VolumeType": "gp3"},
                    "VolumesPerInstance": 4,
                }
            ],
        }

    def test_a_persistent_cluster_has_a_name(self, tmp_path, in_bucket, monkeypatch):
        """Of the option, or of upstream's property."""
        monkeypatch.setenv("SLEEPER_INSTANCE", make_known(tmp_path))
        asked = ("bulk-import", "trips", FAR, "--environment", "s3://b/e", "--dry-run")

        known = json_of(sleeper(*asked, "--submit", "persistent-emr"))
        other = json_of(sleeper(*asked, "--submit", "emr", "--cluster-name", "other"))

        assert known["request"]["cluster_name"] == "kept"
        assert other["request"]["cluster_name"] == "other"
        assert known["request"]["operation"] == "add_job_flow_steps"


def make_known(folder: Path) -> str:
    """An instance whose properties name an application and roles."""
    url = make_trips(folder)
    with (Path(url) / "instance.properties").open("a") as file:
        file.write(
            "sleeper.bulk.import.emr.serverless.application.id=00known\n"
            f"sleeper.bulk.import.emr.serverless.role.arn={ROLE}\n"
            "sleeper.bulk.import.emr.role.name=known-role\n"
            "sleeper.bulk.import.emr.security.conf.name=encrypted\n"
            "sleeper.bulk.import.emr.keypair.name=ours\n"
            "sleeper.bulk.import.emr.master.additional.security.group=sg-1\n"
            "sleeper.bulk.import.emr.ebs.volume.size.gb=100\n"
            "sleeper.bulk.import.emr.ebs.volume.type=gp3\n"
            "sleeper.bulk.import.persistent.emr.cluster.name=kept\n"
        )
    return url


class TestSubmit:
    """What is sent, and what is left."""

    def test_a_command_that_fails(self, url, more):
        """The job stays saved for another try; nothing else is left."""
        failing = ("--submit", "spark-submit", "--spark-submit", "false")

        done = sleeper("bulk-import", "trips", more, "--job-id", "june", *failing)

        assert (done.exit_code, done.stdout) == (1, "")
        assert "false ended with code 1" in done.stderr
        (saved,) = saved_jobs(url)
        assert json.loads(saved.read_text())["files"] == [str(more)]

    def test_a_command_that_takes_the_job(self, url, in_bucket):
        """One line says what was submitted, and where it is saved."""
        done = sleeper(
            *("bulk-import", "trips", FAR, "--job-id", "june", "--submit", "kubernetes"),
            *("--master", "k8s://h", "--image", "i", "--spark-submit", "true"),
        )

        assert done.stdout.startswith(
            "submitted job june to kubernetes; saved as bulk_import/june-"
        )

    def test_everything_wrong_with_a_job_is_told(self, url):
        """And nothing is saved (BLK-2)."""
        done = sleeper("bulk-import", "tripz", "no-file", "--job-id", "June", *SERVERLESS)

        assert done.exit_code == 1
        assert "Table not found: tripz; Could not find one or more paths: no-file; Job Ids" in (
            done.stderr
        )
        assert saved_jobs(url) == []


class TestWrongUse:
    """Ends with 2, and says what goes together."""

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ([], "give TABLE and FILES"),
            (["trips"], "give TABLE and FILES"),
            (["trips", "f", "--engine", "best"], "'best' is not one of"),
            (["trips", "f", "--conf", "novalue"], "should be NAME=VALUE"),
            (["trips", "f", "--dry-run"], "--dry-run goes with --submit"),
            (["trips", "f", "--region", "r"], "--region goes with --submit emr or persistent-emr"),
            (["trips", "f", "--submit", "moon"], "'moon' is not one of"),
            (["trips", "f", "--submit", "emr-serverless"], "needs --application-id, or the"),
            (
                ["trips", "f", "--submit", "emr-serverless", "--application-id", "a"],
                "needs --execution-role",
            ),
            (["trips", "f", "--submit", "persistent-emr"], "needs --cluster-name, or the"),
            (
                ["trips", "f", "--submit", "emr", "--cluster-id", "j", "--cluster-name", "n"],
                "leave one out",
            ),
            (["trips", "f", "--submit", "kubernetes"], "needs --master"),
            (["trips", "f", "--submit", "kubernetes", "--master", "k8s://h"], "needs --image"),
            (["trips", "f", "--submit", "emr", "--image", "i"], "--image goes with --submit kub"),
            (["trips", "f", "--submit", "emr", "--master", "m"], "--master goes with --submit"),
            (
                ["trips", "f", "--submit", "emr", "--cluster-id", "j", "--log-uri", "s3://l"],
                "--log-uri is for a new cluster",
            ),
            (
                ["trips", "f", "--submit", "emr", "--set-aside", "odd"],
                "--set-aside must be a folder that all workers share",
            ),
            (
                ["trips", "f", "--submit", "emr", "--engine", "local"],
                "--engine local runs in this process",
            ),
        ],
    )
    def test_options_that_do_not_go_together(self, url, arguments, message):
        """Nothing is begun."""
        done = sleeper("bulk-import", *arguments)

        assert (done.exit_code, done.stdout) == (2, "")
        assert message in " ".join(done.stderr.split())

    def test_a_job_stands_alone(self, url, tmp_path):
        """--job beside a TABLE would say two things."""
        (tmp_path / "job.json").write_text("{}")

        done = sleeper("bulk-import", "trips", "--job", tmp_path / "job.json")

        assert done.exit_code == 2
        assert "leave out the others" in done.stderr


class TestDriver:
    """The entry script, as far as it goes without Spark."""

    @pytest.mark.parametrize(
        ("arguments", "code", "message"),
        [
            (["bulk_import/x.json"], 1, "no bulk import job was saved at 'bulk_import/x.json'"),
            (['{"tableName": "tripz", "id": "a", "files": ["f"]}'], 1, "Table not found: tripz"),
            (['{"id": []}'], 1, "Error parsing JSON"),
            ([], 2, "Missing argument 'JOB'"),
        ],
    )
    def test_ends_as_sleeper_does(self, url, capsys, arguments, code, message):
        """1 refused, 2 wrong use; before a Spark session is begun."""
        with pytest.raises(SystemExit) as ended:
            run_driver([*arguments, *(("--instance", url) if arguments else ())])

        assert ended.value.code == code
        assert message in capsys.readouterr().err

    def test_a_job_that_is_done_stays_done_where_spark_cannot_be_stopped(
        self, url, more, monkeypatch, caplog
    ):
        """Given Java that has gone at the end, then the driver warns, and ends well."""
        sleeper("bulk-import", "trips", more, "--job-id", "june")

        class GoneSession:
            def stop(self) -> None:
                raise ConnectionRefusedError("the Java process has gone")

        monkeypatch.setattr(
            "sleeper.interfaces.bulk_import_job.driver_session", lambda name: GoneSession()
        )
        job = json.dumps({"id": "june", "tableName": "trips", "files": [str(more)]})
        with pytest.raises(SystemExit) as ended:
            run_driver([job, "--instance", url])

        assert ended.value.code == 0
        assert "Spark could not be stopped" in caplog.text


class TestSparkEnvironment:
    """`sleeper spark-environment`, without fetching packages."""

    def test_an_extra_that_is_not_here(self, url, tmp_path, monkeypatch):
        """Is told, and nothing is made."""

        def version(name: str) -> str:
            if name == "boto3":
                raise PackageNotFoundError(name)
            return "1"

        monkeypatch.setattr("sleeper.spark.submit.environment.version", version)
        done = sleeper("spark-environment", tmp_path / "env", "--extra", "aws")

        assert done.exit_code == 1
        assert "boto3 is not installed here" in done.stderr
        assert not (tmp_path / "env").exists()


class TestExplain:
    """`--explain`, which imports nothing."""

    def test_shows_the_plan_and_adds_no_row(self, url, more):
        """The plan of the given files has a line for each part; the table stays as it was."""
        shown = sleeper("bulk-import", "trips", str(more), "--explain", "--cores", "40").stdout

        assert "2 rows: 1 files, 1 row groups" in shown
        assert "map tasks   1 of " in shown
        assert "on 40 cores" in shown
        assert len(rows_of(sleeper("query", "trips", "--json"))) == len(ROWS)

    def test_alone_knows_cores(self, url, more):
        """--cores would change nothing else, so it is refused without --explain."""
        refused = sleeper("bulk-import", "trips", str(more), "--cores", "3")

        assert refused.exit_code == 2
        assert "--cores goes with --explain" in refused.stderr

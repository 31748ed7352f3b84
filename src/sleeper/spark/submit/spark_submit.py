"""Requests for clusters that spark-submit reaches: local, standalone, YARN and Kubernetes.

EKS is Kubernetes. In cluster mode the driver runs there and the command ends when the job was
taken or is done, as the cluster manager has it; in client mode the driver is the command.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sleeper.errors import BadRequest
from sleeper.spark.submit.request import PYTHON, CommandRequest, DriverCall, conf_arguments

ENTRY_IN_IMAGE = "local:///sleeper/sleeper_bulk_import.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSubmit:
    """A cluster at the end of spark-submit.

    Attributes:
        program: The command, as a path or a name.
        master: `local[2]`, `spark://host:7077`, `yarn`.
        deploy_mode: Where the driver runs: here (client), or on the cluster.
        python: The Python of a driver that runs here; it has Sleeper installed.
        entry: The entry script on this machine.
    """

    program: str
    master: str
    deploy_mode: Literal["client", "cluster"]
    python: str
    entry: str

    def request(self, call: DriverCall) -> CommandRequest:
        """Return the command.

        Raises:
            BadRequest: the driver would run on the cluster, and there is no environment, or the
                cluster is one that takes no drivers in Python.
        """
        here = self.deploy_mode == "client"
        if not here and self.master.startswith(("spark://", "local")):
            raise BadRequest(
                f"{self.master} runs no drivers in Python: leave out --deploy-mode, and the driver "
                "runs here"
            )
        conf = {**call.spark_conf, **self._python_conf(call, here=here)}
        return CommandRequest(
            (
                self.program,
                *("--master", self.master, "--deploy-mode", self.deploy_mode, "--name", call.name),
                *(("--archives", call.archive) if call.environment or not here else ()),
                *conf_arguments(conf),
                self.entry if here else call.entry,
                *call.arguments,
            )
        )

    def _python_conf(self, call: DriverCall, *, here: bool) -> dict[str, str]:
        """Which Python runs the driver and the workers.

        Workers on the driver's own machine take its Python, as local[*] has only that one.
        """
        local = self.master.startswith("local")
        workers = PYTHON if call.environment and not local else self.python
        if here:
            return {"spark.pyspark.driver.python": self.python, "spark.pyspark.python": workers}
        conf = {"spark.pyspark.python": PYTHON}
        if self.master == "yarn":
            conf["spark.yarn.appMasterEnv.PYSPARK_PYTHON"] = PYTHON
        return conf


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubernetes:
    """A Kubernetes cluster, whose pods run an image with Sleeper in it.

    Attributes:
        program: spark-submit, as a path or a name.
        master: `k8s://https://host:port`.
        image: The container image: Spark, Python, Sleeper, and the entry script.
        entry: Where the entry script is in the image, as `local:///...`.
        namespace: Where the pods run.
        service_account: Of all pods; it may make, watch and delete pods, and reach the data.
        wait: Whether the command waits until the job has ended.
    """

    program: str
    master: str
    image: str
    entry: str = ENTRY_IN_IMAGE
    namespace: str = "default"
    service_account: str = "spark"
    wait: bool = True

    def request(self, call: DriverCall) -> CommandRequest:
        """Return the command.

        Raises:
            BadRequest: the master is no Kubernetes cluster.
        """
        if not self.master.startswith("k8s://"):
            raise BadRequest(
                f"{self.master!r} is no Kubernetes cluster: --master is k8s:// and the URL of its "
                "API server, as `kubectl cluster-info` shows it"
            )
        conf = {
            "spark.kubernetes.authenticate.driver.serviceAccountName": self.service_account,
            # Workers read and write data themselves, so they need its permissions too.
            "spark.kubernetes.authenticate.executor.serviceAccountName": self.service_account,
            "spark.kubernetes.container.image": self.image,
            "spark.kubernetes.namespace": self.namespace,
            "spark.kubernetes.submission.waitAppCompletion": str(self.wait).lower(),
            **call.spark_conf,
        }
        return CommandRequest(
            (
                self.program,
                *("--master", self.master, "--deploy-mode", "cluster", "--name", call.name),
                *conf_arguments(conf),
                self.entry,
                *call.arguments,
            )
        )

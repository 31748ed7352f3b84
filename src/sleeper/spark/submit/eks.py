"""Requests for EKS: one call, StartExecution, of the state machine that runs jobs there.

The state machine knows the cluster, the namespace and the image (`state_machine.py`). Its input
says what is to run, and how large its pods are.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sleeper.errors import BadRequest
from sleeper.spark.submit.effective_conf import memory_mib
from sleeper.spark.submit.request import AwsRequest, DriverCall, conf_arguments
from sleeper.spark.submit.spark_settings import whole_of

# ---------------------------------------------------------------- pods
#
# The pods of a job on EKS: what they are called, how large they are, and executors' template.

EPHEMERAL_STORAGE: Final = "sleeper.bulk.import.eks.spark.executor.ephemeral.storage"
SPARK_USER: Final = 185
"""The user of Spark's images, and of ours."""

# Spark adds up to 16 characters to the prefix of executors, and a name has 63 at most.
_PREFIX_MAX: Final = 47
_POD_DIGEST: Final = 8
FARGATE_SIZES: Final[Mapping[int, Sequence[int]]] = {
    256: (512, 1024, 2048),
    512: range(1024, 4096 + 1, 1024),
    1024: range(2048, 8192 + 1, 1024),
    2048: range(4096, 16384 + 1, 1024),
    4096: range(8192, 30720 + 1, 1024),
    8192: range(16384, 61440 + 1, 4096),
    16384: range(32768, 122880 + 1, 8192),
}
"""What Fargate has: MB of memory, by processor units, of which a vCPU has 1,024."""

# Of a pod's memory Fargate takes 256 MB itself. Disks are in GiB.
_VCPU_MAX, _OWN_MIB = 16, 256
_DISK_GIB: Final = (20, 175)
_GIB = re.compile(r"(\d+)\s*Gi")


@dataclass(frozen=True, slots=True)
class PodSize:
    """What a pod asks for.

    Attributes:
        cores: Processors.
        mib: Memory: heap and overhead together.
    """

    cores: int
    mib: int

    @classmethod
    def of(cls, role: str, spark_conf: Mapping[str, str]) -> PodSize:
        """Return the size of a driver's or an executor's pod.

        Raises:
            ValueError: Spark's settings have no such size.
        """
        return cls(
            cores=int(spark_conf.get(f"spark.{role}.cores", "1")),
            mib=math.ceil(memory_mib(role, spark_conf)),
        )


def pod_prefix(job_id: str, run_id: str) -> str:
    """Return what the names of a run's pods begin with: the job's id, and a mark of the run.

    >>> pod_prefix("june", "1")
    'job-june-6b86b273'
    """
    mark = hashlib.sha256(run_id.encode()).hexdigest()[:_POD_DIGEST]
    start = f"job-{job_id}"[: _PREFIX_MAX - _POD_DIGEST - 1].rstrip("-")
    return f"{start}-{mark}"


def fargate_failures(spark_conf: Mapping[str, str], storage: str) -> Iterator[str]:
    """Yield why Fargate has no pods of the sizes that are asked for.

    Args:
        spark_conf: Spark's settings.
        storage: The disk of an executor, such as `175Gi`.
    """
    for role in ("driver", "executor"):
        if failure := _pod_failure(role, spark_conf):
            yield failure
    found = _GIB.fullmatch(storage)
    least, most = _DISK_GIB
    if found is None or not least <= int(found[1]) <= most:
        yield f"{EPHEMERAL_STORAGE} is {storage!r}, but Fargate has {least}Gi to {most}Gi"


def _pod_failure(role: str, spark_conf: Mapping[str, str]) -> str | None:
    """Say why Fargate has no pod of a size. What cannot be read is left to `conf_failures`."""
    name = f"spark.{role}.cores"
    cores = max(1, whole_of({name: "1", **spark_conf}, name) or _VCPU_MAX)
    try:
        mib = math.ceil(memory_mib(role, spark_conf))
    except ValueError:
        mib = 0
    # Fargate takes its next size that has as many processors.
    vcpu = min((each // 1024 for each in FARGATE_SIZES if each >= cores * 1024), default=_VCPU_MAX)
    most, largest = (
        (FARGATE_SIZES[each * 1024][-1] - _OWN_MIB) / 1024 for each in (vcpu, _VCPU_MAX)
    )
    asked = (
        f"spark.{role}.cores, memory and memoryOverhead ask for a pod of {cores} vCPU and "
        f"{mib / 1024:.1f} GB, but Fargate has"
    )
    if cores > _VCPU_MAX or mib / 1024 > largest:
        return f"{asked} {_VCPU_MAX} vCPU and {largest:.1f} GB at most"
    if mib / 1024 > most:
        return f"{asked} {most:.1f} GB at most with {vcpu} vCPU: ask for less memory or more cores"
    return None


def executor_template(storage: str) -> str:
    """Return the template of executors' pods, which Spark completes, as JSON.

    Args:
        storage: The disk of an executor, such as `175Gi`.
    """
    disk = {"ephemeral-storage": storage}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "spec": {
                "securityContext": pod_security(),
                "containers": [
                    {
                        "name": "executor",
                        "securityContext": container_security(),
                        "resources": {"requests": disk, "limits": disk},
                    }
                ],
            },
        }
    )


def pod_security() -> dict[str, Any]:
    """Return the rules of a pod: no process runs as root; tokens are readable to its group."""
    return {"runAsNonRoot": True, "runAsUser": SPARK_USER, "fsGroup": SPARK_USER}


def container_security() -> dict[str, Any]:
    """Return the rules of a container: it gains no rights."""
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


ENTRY: Final = "local:///sleeper/sleeper_bulk_import.py"
INPUT_BYTES_MAX: Final = 262_144  # of one execution, says AWS

_DIGEST: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Eks:
    """A state machine that runs jobs on a cluster of EKS.

    Attributes:
        state_machine_arn: The state machine.
        executor_storage: The disk of each executor's pod.
        is_fargate: Whether pods run on Fargate, which has sizes of its own.
        region: Its region; None for what the surroundings say.
        endpoint_url: Another server than AWS's own.
    """

    state_machine_arn: str
    executor_storage: str = "175Gi"
    is_fargate: bool = True
    region: str | None = None
    endpoint_url: str | None = None

    def failures(self, spark_conf: Mapping[str, str]) -> list[str]:
        """Return why there are no pods of the sizes that Spark's settings ask for."""
        return [*fargate_failures(spark_conf, self.executor_storage)] if self.is_fargate else []

    def request(self, call: DriverCall, *, table_id: str, job_id: str, run_id: str) -> AwsRequest:
        """Return the call. An execution is named by its job, so that a second call starts none.

        Args:
            call: The driver.
            table_id: The job's table.
            job_id: The job.
            run_id: Its run; the pods are named by job and run.

        Raises:
            BadRequest: the job is too large for an execution's input.
        """
        pods = pod_prefix(job_id, run_id)
        size = PodSize.of("driver", call.spark_conf)
        conf = {
            **call.spark_conf,
            "spark.app.name": call.name,
            "spark.kubernetes.executor.podNamePrefix": pods,
        }
        given = {
            "job": {"id": job_id, "tableId": table_id, "runId": run_id},
            "pod": pods,
            "driver": {"cpu": str(size.cores), "memory": f"{size.mib}Mi"},
            "executorPodTemplate": executor_template(self.executor_storage),
            "args": [*conf_arguments(conf), ENTRY, *call.arguments],
        }
        text = json.dumps(given)
        if len(text.encode()) > INPUT_BYTES_MAX:
            raise BadRequest(
                f"the job would have {len(text.encode()):,} bytes, and Step Functions allows "
                f"{INPUT_BYTES_MAX:,}: set fewer Spark settings in it"
            )
        return AwsRequest(
            service="stepfunctions",
            operation="start_execution",
            parameters={
                "stateMachineArn": self.state_machine_arn,
                "name": execution_name(table_id, job_id),
                "input": text,
            },
            answer_id="executionArn",
            is_once=True,
            region=self.region,
            endpoint_url=self.endpoint_url,
        )


def execution_name(table_id: str, job_id: str) -> str:
    """Return the name of a job's first execution: the job's id, and a mark of its table.

    >>> execution_name("9f2c", "june")
    'june-745c056dc09f'
    """
    return f"{job_id}-{hashlib.sha256(table_id.encode()).hexdigest()[:_DIGEST]}"


# ---------------------------------------------------------------- manifests
#
# What a job needs in Kubernetes, as manifests: an account, its rights, and the driver's job.

NAME: Final = "sleeper-spark"
"""Of the service account, its role and its binding."""

_KEPT_S: Final = 600  # a job that nobody deleted
_LABELS: Final = {"app.kubernetes.io/name": "sleeper", "app.kubernetes.io/component": "bulk-import"}
_PORT, _BLOCKS_PORT = 7078, 7079
# The driver is the pod's own process, so its exit code is the job's. Executors find it by its
# address, and go when its pod goes, whose name they get.
_SCRIPT: Final = f"""\
set -eu
template=$(mktemp)
printf '%s' "$EXECUTOR_POD_TEMPLATE" > "$template"
export PATH="$PATH:/opt/spark/bin"
exec spark-submit \\
    --master k8s://https://kubernetes.default.svc --deploy-mode client \\
    --conf spark.kubernetes.namespace="$NAMESPACE" \\
    --conf spark.kubernetes.container.image="$IMAGE" \\
    --conf spark.kubernetes.authenticate.executor.serviceAccountName={NAME} \\
    --conf spark.kubernetes.driver.pod.name="$POD_NAME" \\
    --conf spark.kubernetes.executor.podTemplateFile="$template" \\
    --conf spark.driver.host="$POD_IP" --conf spark.driver.bindAddress="$POD_IP" \\
    --conf spark.driver.port={_PORT} --conf spark.blockManager.port={_BLOCKS_PORT} \\
    "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifests:
    """The objects of one namespace.

    Attributes:
        namespace: Where they are.
        image: The image of drivers and executors.
        role_arn: The role of IAM whose permissions the pods have.
        region: The region of the instance.
    """

    namespace: str
    image: str
    role_arn: str
    region: str

    def service_account(self) -> dict[str, Any]:
        """Return the account of drivers and executors, which both read and write data."""
        account = self._object("v1", "ServiceAccount")
        account["metadata"]["annotations"] = {"eks.amazonaws.com/role-arn": self.role_arn}
        return account

    def role(self) -> dict[str, Any]:
        """Return what drivers may do: make, watch and delete their executors."""
        return {
            **self._object("rbac.authorization.k8s.io/v1", "Role"),
            "rules": [
                {
                    "apiGroups": [""],
                    "resources": ["pods", "services", "configmaps", "persistentvolumeclaims"],
                    "verbs": ["create", "get", "list", "watch", "delete", "deletecollection"],
                }
            ],
        }

    def role_binding(self) -> dict[str, Any]:
        """Return who may do that."""
        return {
            **self._object("rbac.authorization.k8s.io/v1", "RoleBinding"),
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": NAME},
            "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": self.namespace}],
        }

    def driver_job(self) -> dict[str, Any]:
        """Return the job of a driver, with paths into an execution's input for what is its own."""
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name.$": "$.pod", "labels": {**_LABELS}},
            "spec": {
                "backoffLimit": 0,
                "ttlSecondsAfterFinished": _KEPT_S,
                "template": {"metadata": {"labels": {**_LABELS}}, "spec": self._driver_pod()},
            },
        }

    def _driver_pod(self) -> dict[str, Any]:
        size = {"cpu.$": "$.driver.cpu", "memory.$": "$.driver.memory"}
        return {
            "serviceAccountName": NAME,
            "restartPolicy": "Never",
            "securityContext": pod_security(),
            "containers": [
                {
                    "name": "driver",
                    "image": self.image,
                    "command": ["/bin/sh", "-c", _SCRIPT, "spark-submit"],
                    "args.$": "$.args",
                    "env": [
                        {"name": "NAMESPACE", "value": self.namespace},
                        {"name": "IMAGE", "value": self.image},
                        {"name": "AWS_REGION", "value": self.region},
                        {"name": "POD_NAME", "valueFrom": _field("metadata.name")},
                        {"name": "POD_IP", "valueFrom": _field("status.podIP")},
                        {"name": "EXECUTOR_POD_TEMPLATE", "value.$": "$.executorPodTemplate"},
                    ],
                    "resources": {"requests": size, "limits": {"memory.$": "$.driver.memory"}},
                    "securityContext": container_security(),
                }
            ],
        }

    def _object(self, version: str, kind: str) -> dict[str, Any]:
        meta = {"name": NAME, "namespace": self.namespace, "labels": {**_LABELS}}
        return {"apiVersion": version, "kind": kind, "metadata": meta}


def _field(path: str) -> dict[str, Any]:
    return {"fieldRef": {"fieldPath": path}}


# ---------------------------------------------------------------- state machine
#
# The state machine of Step Functions that runs a job on EKS, as Amazon States Language.
#
# 1. It makes the service account, the role and its binding; what is there already stays (409).
# 2. It makes a job of Kubernetes for the driver, and waits for its end.
# 3. It deletes the job, and with it the driver's pod and the executors, in failure too.
#
# Its input is made by `cluster.py`.

_ACCOUNTS: Final = "/api/v1/namespaces/{}/serviceaccounts"
_RIGHTS: Final = "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/{}"
_JOBS: Final = "States.Format('/apis/batch/v1/namespaces/{}/jobs/{{}}', $.pod)"
_IS_THERE: Final = "EKS.409"
_RUN_S_MAX: Final = 7 * 24 * 3600  # as a run of EMR Serverless
_CALL_S_MAX: Final = 60
_RETRY: Final = {
    "ErrorEquals": ["EKS.429", "EKS.500", "EKS.503", "EKS.504", "States.Timeout"],
    "IntervalSeconds": 2,
    "BackoffRate": 2.0,
    "MaxAttempts": 5,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StateMachine:
    """A state machine for one cluster of EKS.

    Attributes:
        cluster_name: The cluster.
        endpoint: The URL of its API server.
        certificate: Its certificate authority, as EKS shows it.
        manifests: What is made there.
        partition: Of ARNs: `aws`, but in China and for governments.
    """

    cluster_name: str
    endpoint: str
    certificate: str
    manifests: Manifests
    partition: str = "aws"

    def definition(self) -> dict[str, Any]:
        """Return the definition."""
        objects, namespace = self.manifests, self.manifests.namespace
        accounts = _ACCOUNTS.format(namespace)
        roles = _RIGHTS.format(namespace, "roles")
        bindings = _RIGHTS.format(namespace, "rolebindings")
        states = {
            "MakeAccount": self._made(accounts, objects.service_account(), "MakeRole"),
            "MakeRole": self._made(roles, objects.role(), "MakeBinding"),
            "MakeBinding": self._made(bindings, objects.role_binding(), "RunDriver"),
            "RunDriver": self._run(),
            "DeleteJob": self._deleted("Done"),
            "DeleteFailedJob": self._deleted("Failed"),
            "Done": {"Type": "Succeed"},
            "Failed": {
                "Type": "Fail",
                "ErrorPath": "$.failure.Error",
                "CausePath": "$.failure.Cause",
            },
        }
        return {
            "Comment": "Runs a bulk import of Sleeper as a job of Kubernetes.",
            "StartAt": "MakeAccount",
            "States": states,
        }

    def _call(self, resource: str, parameters: dict[str, Any]) -> dict[str, Any]:
        return {
            "Type": "Task",
            "Resource": f"arn:{self.partition}:states:::eks:{resource}",
            "Parameters": {
                "ClusterName": self.cluster_name,
                "CertificateAuthority": self.certificate,
                "Endpoint": self.endpoint,
                **parameters,
            },
            "Retry": [_RETRY],
        }

    def _made(self, path: str, manifest: dict[str, Any], following: str) -> dict[str, Any]:
        return {
            **self._call("call", {"Method": "POST", "Path": path, "RequestBody": manifest}),
            "TimeoutSeconds": _CALL_S_MAX,
            "ResultPath": None,
            "Catch": [{"ErrorEquals": [_IS_THERE], "ResultPath": None, "Next": following}],
            "Next": following,
        }

    def _run(self) -> dict[str, Any]:
        job = {"Namespace": self.manifests.namespace, "Job": self.manifests.driver_job()}
        task = self._call("runJob.sync", job)
        del task["Retry"]  # a second job would be one of the same name
        return {
            **task,
            "TimeoutSeconds": _RUN_S_MAX,
            "ResultPath": None,
            "Catch": [
                {
                    "ErrorEquals": ["States.ALL"],
                    "ResultPath": "$.failure",
                    "Next": "DeleteFailedJob",
                }
            ],
            "Next": "DeleteJob",
        }

    def _deleted(self, following: str) -> dict[str, Any]:
        parameters = {
            "Method": "DELETE",
            "Path.$": _JOBS.format(self.manifests.namespace),
            "QueryParameters": {"propagationPolicy": ["Background"]},
        }
        # It deletes itself some minutes later where this fails.
        return {
            **self._call("call", parameters),
            "TimeoutSeconds": _CALL_S_MAX,
            "ResultPath": None,
            "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": None, "Next": following}],
            "Next": following,
        }

"""What a job needs in Kubernetes, as manifests: an account, its rights, and the driver's job."""

from __future__ import annotations

from typing import Any, Final

from sleeper.language.value_classes import dataclass
from sleeper.spark.submit.eks.pods import container_security, pod_security

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

"""The state machine of Step Functions that runs a job on EKS, as Amazon States Language.

1. It makes the service account, the role and its binding; what is there already stays (409).
2. It makes a job of Kubernetes for the driver, and waits for its end.
3. It deletes the job, and with it the driver's pod and the executors, in failure too.

Its input is made by `cluster.py`.
"""

from __future__ import annotations

from typing import Any, Final

from sleeper.language.value_classes import dataclass
from sleeper.spark.submit.eks.manifests import Manifests

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

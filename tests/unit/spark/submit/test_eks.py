"""Jobs on EKS: what Step Functions is asked for, and what it makes in Kubernetes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest

from sleeper.errors import BadRequest
from sleeper.spark.submit.eks import (
    ENTRY,
    INPUT_BYTES_MAX,
    NAME,
    Eks,
    Manifests,
    StateMachine,
    execution_name,
    executor_template,
    pod_prefix,
)
from sleeper.spark.submit.request import DriverCall

ARN = "arn:aws:states:eu-west-2:123456789012:stateMachine:sleeper-i-bulk-import-eks"
KUBERNETES = "1.35"
CONF = {
    "spark.driver.cores": "4",
    "spark.driver.memory": "4g",
    "spark.driver.memoryOverhead": "6g",
    "spark.executor.cores": "4",
    "spark.executor.memory": "6g",
    "spark.executor.memoryOverhead": "10g",
}
MANIFESTS = Manifests(
    namespace="sleeper",
    image="123456789012.dkr.ecr.eu-west-2.amazonaws.com/sleeper/spark:1",
    role_arn="arn:aws:iam::123456789012:role/sleeper-i-eks",
    region="eu-west-2",
)
MACHINE = StateMachine(
    cluster_name="sleeper-i", endpoint="https://host", certificate="abc=", manifests=MANIFESTS
)


def call(**conf: str) -> DriverCall:
    """A driver of the job june."""
    return DriverCall(
        name="sleeper-i-trips-june",
        arguments=("bulk_import/june-run.json", "--instance", "aws://i"),
        spark_conf={**CONF, **conf},
    )


def asked(**conf: str) -> dict[str, Any]:
    """What Step Functions is asked for, by a run of june."""
    request = Eks(state_machine_arn=ARN).request(
        call(**conf), table_id="t1", job_id="june", run_id="run"
    )
    assert request.is_once
    return dict(request.parameters)


class TestRequest:
    """StartExecution."""

    def test_an_execution_is_named_by_its_job(self):
        """Two runs of a job have one name, and jobs of two tables have two (BLK-12)."""
        assert asked()["name"] == execution_name("t1", "june")
        assert execution_name("t1", "june") != execution_name("t2", "june")
        assert len(execution_name("t1", "x" * 63)) <= 76

    def test_the_input_says_what_runs_and_how_large_its_pods_are(self):
        """The driver's pod has heap and overhead; executors have a prefix and a template."""
        given = json.loads(asked()["input"])

        settings = dict(
            value.split("=", 1) for flag, value in pairwise(given["args"]) if flag == "--conf"
        )
        assert given["pod"] == pod_prefix("june", "run")
        assert given["driver"] == {"cpu": "4", "memory": "10240Mi"}
        assert settings["spark.kubernetes.executor.podNamePrefix"] == given["pod"]
        assert settings["spark.app.name"] == "sleeper-i-trips-june"
        assert given["args"][-4:] == [
            *(ENTRY, "bulk_import/june-run.json", "--instance", "aws://i")
        ]

    @pytest.mark.parametrize("job_id", ["june", "x" * 63, "a-" * 31])
    def test_pods_have_names_that_kubernetes_takes(self, job_id):
        """Spark adds 16 characters at most, and a name has 63; other runs have other names."""
        prefix = pod_prefix(job_id, "run")

        assert prefix.startswith(f"job-{job_id[:30].rstrip('-')}")
        assert len(prefix) <= 47
        assert "--" not in prefix
        assert prefix != pod_prefix(job_id, "other run")

    def test_an_input_has_a_largest_size(self):
        """Step Functions' own limit is told before the call."""
        with pytest.raises(BadRequest, match="262,144"):
            asked(**{"spark.long": "x" * INPUT_BYTES_MAX})

    @pytest.mark.parametrize(
        ("conf", "message"),
        [
            ({"spark.executor.cores": "17"}, "spark.executor.cores, .* 17 vCPU"),
            ({"spark.executor.memory": "119g"}, "129.0 GB, but Fargate has 16 vCPU and 119.8 GB"),
            ({"spark.driver.cores": "32"}, "spark.driver.cores, .* 32 vCPU and 10.0 GB"),
            ({"spark.executor.cores": "2"}, "2 vCPU and 16.0 GB, but Fargate has 15.8 GB at most"),
        ],
    )
    def test_pods_that_fargate_does_not_have_are_told(self, conf, message):
        """Elsewhere, nodes may be larger."""
        (failure,) = Eks(state_machine_arn=ARN).failures({**CONF, **conf})

        with pytest.raises(AssertionError, match=message):
            raise AssertionError(failure)
        assert Eks(state_machine_arn=ARN, is_fargate=False).failures({**CONF, **conf}) == []

    @pytest.mark.parametrize("storage", ["10Gi", "200Gi", "175G", "much"])
    def test_a_disk_that_fargate_does_not_have_is_told(self, storage):
        """By the property's name."""
        (failure,) = Eks(state_machine_arn=ARN, executor_storage=storage).failures(CONF)

        assert failure.endswith(f"is {storage!r}, but Fargate has 20Gi to 175Gi")
        assert failure.startswith("sleeper.bulk.import.eks.spark.executor.ephemeral.storage")


def filled(value: Any, given: dict[str, Any]) -> Any:
    """A manifest with an execution's input in the place of paths, as Step Functions does it."""
    match value:
        case dict():
            return dict(filled_members(value, given))
        case list():
            return [filled(each, given) for each in value]
        case _:
            return value


def filled_members(value: dict[str, Any], given: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The members of a manifest, with those that are paths replaced."""
    for name, member in value.items():
        if not name.endswith(".$"):
            yield name, filled(member, given)
            continue
        found: Any = given
        for part in member.removeprefix("$.").split("."):
            found = found[part]
        yield name.removesuffix(".$"), found


def is_valid(manifest: dict[str, Any], version: str) -> bool:
    """Whether a version of Kubernetes has an object like this, and knows all of its fields."""
    try:
        kubernetes_validate.validate(manifest, version, strict=True)
    except kubernetes_validate.ValidationError:
        return False
    return True


class TestStateMachine:
    """Its definition, and the objects in it."""

    def test_the_definition_is_one_of_amazons_states_language(self):
        """By the schema that cfn-lint has."""
        schema = files("cfnlint.data.schemas.other.step_functions") / "statemachine.json"

        rules = jsonschema.Draft7Validator(json.loads(schema.read_text()))

        assert [error.message for error in rules.iter_errors(MACHINE.definition())] == []

    def test_every_state_is_reached_and_ends(self):
        """Each path goes on to states that are there."""
        states = MACHINE.definition()["States"]

        followers = {
            name: {state.get("Next"), *(each["Next"] for each in state.get("Catch", ()))} - {None}
            for name, state in states.items()
        }

        assert set().union(*followers.values()) | {"MakeAccount"} == set(states)
        assert {name for name, after in followers.items() if not after} == {"Done", "Failed"}

    @pytest.mark.parametrize("state", ["MakeAccount", "MakeRole", "MakeBinding"])
    def test_what_is_there_already_stays(self, state):
        """Kubernetes answers 409, which is fine; other errors are none of the job's."""
        made = MACHINE.definition()["States"][state]

        assert made["Catch"] == [
            {"ErrorEquals": ["EKS.409"], "ResultPath": None, "Next": made["Next"]}
        ]
        assert made["Parameters"]["Method"] == "POST"
        assert f"/namespaces/{MANIFESTS.namespace}/" in made["Parameters"]["Path"]

    def test_a_job_is_deleted_however_it_ended(self):
        """Pods on Fargate cost for as long as they are there."""
        states = MACHINE.definition()["States"]

        assert states["RunDriver"]["Resource"].endswith(":eks:runJob.sync")
        assert "Retry" not in states["RunDriver"]
        for end in (states["RunDriver"]["Next"], states["RunDriver"]["Catch"][0]["Next"]):
            assert states[end]["Parameters"]["Method"] == "DELETE"
            assert "/jobs/{}', $.pod" in states[end]["Parameters"]["Path.$"]

    @pytest.mark.parametrize("version", [KUBERNETES, "1.31"])
    def test_kubernetes_takes_every_manifest(self, version):
        """By its own schemas, with nothing that they do not know."""
        given = json.loads(asked()["input"])
        manifests = [
            MANIFESTS.service_account(),
            MANIFESTS.role(),
            MANIFESTS.role_binding(),
            filled(MANIFESTS.driver_job(), given),
            json.loads(given["executorPodTemplate"]),
        ]

        assert [each["kind"] for each in manifests if not is_valid(each, version)] == []

    def test_the_driver_is_the_pods_own_process(self, tmp_path):
        """Given a pod, then its spark-submit gets the pod's name and address, and the job's own."""
        program = tmp_path / "spark-submit"
        program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\nexit 75\n')
        program.chmod(0o755)
        (driver,) = MANIFESTS.driver_job()["spec"]["template"]["spec"]["containers"]
        given = json.loads(asked(**{"spark.mine": "a b"})["input"])
        variables = {each["name"]: each.get("value", "") for each in driver["env"]} | {
            "PATH": f"{tmp_path}:{os.defpath}",
            "POD_NAME": "pod",
            "POD_IP": "10.0.0.1",
            "EXECUTOR_POD_TEMPLATE": given["executorPodTemplate"],
        }

        done = subprocess.run(
            [*driver["command"], *given["args"]],
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )

        said = done.stdout.splitlines()
        settings = dict(value.split("=", 1) for flag, value in pairwise(said) if flag == "--conf")
        assert done.returncode == 75  # what the driver ends with is what Kubernetes sees
        assert said[:4] == [
            *("--master", "k8s://https://kubernetes.default.svc", "--deploy-mode", "client")
        ]
        assert said[-4:] == given["args"][-4:]
        assert settings["spark.kubernetes.driver.pod.name"] == "pod"
        assert settings["spark.driver.host"] == "10.0.0.1"
        assert settings["spark.kubernetes.container.image"] == MANIFESTS.image
        assert settings["spark.kubernetes.namespace"] == "sleeper"
        assert settings["spark.mine"] == "a b"
        template = Path(settings["spark.kubernetes.executor.podTemplateFile"])
        assert template.read_text() == given["executorPodTemplate"]
        template.unlink()

    def test_a_driver_may_only_work_on_its_executors(self):
        """In its own namespace: no secrets, no rights, no other resources."""
        (rule,) = MANIFESTS.role()["rules"]

        assert "secrets" not in rule["resources"]
        assert "*" not in [*rule["resources"], *rule["verbs"], *rule["apiGroups"]]
        assert MANIFESTS.role()["kind"] == "Role"

    def test_no_pod_runs_as_root_or_gains_rights(self):
        """Neither drivers nor executors."""
        driver = MANIFESTS.driver_job()["spec"]["template"]["spec"]
        executor = json.loads(executor_template("20Gi"))["spec"]

        for pod in (driver, executor):
            assert pod["securityContext"]["runAsNonRoot"]
            (container,) = pod["containers"]
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert driver["serviceAccountName"] == NAME
        assert driver["restartPolicy"] == "Never"

    def test_cloudformation_finds_nothing_to_substitute(self):
        """A definition may not have what its substitutions look like, unless it is one."""
        assert "${" not in json.dumps(MACHINE.definition())

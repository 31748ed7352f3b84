"""deploy/helm: a chart that helm renders, and manifests that Kubernetes' schemas accept.

There is no cluster here, so nothing is installed; helm's own code renders.
"""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache

import kubernetes_validate
import pyarrow as pa
import pytest
import yaml

import sleeper as library
from sleeper.workers.serve.metrics import Metrics, NoWorkers, TableFigures
from tests.contracts.servers.installed import HELM
from tests.deploy.files.programs import ROOT
from tests.unit.interfaces.command_line import sleeper
from tests.unit.workers.clocks import clock_of

CHART = ROOT / "deploy" / "helm" / "sleeper"
IMAGE = {"repository": "registry.example.com/sleeper"}
SCHEMA = pa.schema([("id", pa.int64())])
KUBERNETES = ("1.29", "1.33", "1.37")
"""The oldest version that the chart names, the newest that is known here, and one between."""
SQS = "https://sqs.eu-west-2.amazonaws.com/123456789012/sleeper-demo-IngestJobQ"
CUSTOM = {"PodMonitor", "ScaledObject"}

VALUES = {
    "least": {"instance": "s3://bucket/demo", "image": IMAGE},
    "workers on AWS": {
        "instance": "aws://demo",
        "image": {**IMAGE, "digest": f"sha256:{'0' * 64}", "pullSecrets": ["pull"]},
        "environment": {"AWS_REGION": "eu-west-2"},
        "serviceAccount": {
            "annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::123456789012:role/sleeper"}
        },
        "serve": {"onlyTables": True},
        "workers": {
            "ingest": {
                "autoscaling": {"by": "keda-sqs", "max": 20, "queueUrl": SQS, "region": "eu-west-2"}
            },
            "query": {
                "autoscaling": {"by": "keda-prometheus", "max": 5, "prometheus": "http://p:9090"}
            },
            "export": {
                "autoscaling": {"by": "hpa", "max": 3, "metric": "sleeper_queue_messages_ready"}
            },
            "compaction": {"replicas": 2},
            "bulk-import": {},
        },
        "spark": {"enabled": True},
        "nodeSelector": {"kubernetes.io/arch": "arm64"},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
    },
    "a server beside a store of one's own": {
        "instance": "s3://bucket/demo",
        "image": {**IMAGE, "tag": "0.2.0"},
        "secretName": "keys",
        "environment": {"AWS_ENDPOINT_URL": "http://store:7070"},
        "serviceAccount": {"create": False, "name": "mine"},
        "serve": {"jobWorkers": {"ingest": 4, "export": 0}},
        "server": {
            "enabled": True,
            "replicas": 2,
            "tokensSecret": "tokens",
            "tlsSecret": "tls",
            "ingress": {"enabled": True, "host": "sleeper.example.com", "tlsSecret": "cert"},
        },
        "networkPolicy": {
            "serverFrom": [{"namespaceSelector": {}}],
            "metricsFrom": [{"podSelector": {"matchLabels": {"app": "prometheus"}}}],
            "egressPorts": [443, 7070],
        },
    },
    "jobs on a volume": {
        "instance": "s3://bucket/demo",
        "image": IMAGE,
        "jobsVolume": {"enabled": True, "storageClass": "fast"},
        "server": {"enabled": True, "tokensSecret": "tokens"},
        "affinity": {
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "labelSelector": {"matchLabels": {"app": "store"}},
                        "topologyKey": "topology.kubernetes.io/zone",
                    }
                ]
            }
        },
    },
    "what platform teams set": {
        "instance": "aws://demo",
        "image": IMAGE,
        "fullnameOverride": "rows",
        "commonLabels": {"team": "data"},
        "podLabels": {"mesh": "off"},
        "podAnnotations": {"sidecar": "none"},
        "priorityClassName": "batch",
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "sleeper"}},
            }
        ],
        "extraVolumes": [{"name": "certificates", "secret": {"secretName": "ca"}}],
        "extraVolumeMounts": [{"name": "certificates", "mountPath": "/certificates"}],
        "extraEnvFrom": [{"configMapRef": {"name": "variables"}}],
        "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "networkPolicy": {"podIdentity": True},
        "workers": {
            "compaction": {
                "autoscaling": {"by": "keda-prometheus", "max": 5, "prometheus": "http://p:9090"}
            }
        },
        "server": {
            "enabled": True,
            "tokensSecret": "tokens",
            "autoscaling": {"min": 2, "max": 6},
        },
    },
}
each_set = pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)


def helm(*arguments: str, values: dict) -> subprocess.CompletedProcess[str]:
    """Run helm on the chart."""
    return helm_given(yaml.safe_dump(values), *arguments)


def helm_given(values: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [HELM.require(), arguments[0], CHART, *arguments[1:]]
    return subprocess.run(command, input=values, capture_output=True, text=True, check=False)


def rendered(values: dict) -> list[dict]:
    """Return the manifests."""
    return rendered_given(yaml.safe_dump(values))


@cache
def rendered_given(values: str) -> list[dict]:
    """Return the manifests, made once for all tests: they only read them, and helm is slow."""
    done = helm_given(values, "template", "demo", "data")
    assert done.returncode == 0, done.stderr
    texts = [text for path, text in json.loads(done.stdout).items() if path.endswith(".yaml")]
    return [found for text in texts for found in yaml.safe_load_all(text) if found]


def of_kind(manifests: list[dict], kind: str) -> dict[str, dict]:
    """Return the manifests of a kind, by name."""
    return {each["metadata"]["name"]: each for each in manifests if each["kind"] == kind}


def containers(manifests: list[dict]) -> list[dict]:
    """Return every container."""
    pods = [each["spec"]["template"]["spec"] for each in of_kind(manifests, "Deployment").values()]
    return [each for pod in pods for each in [*pod["containers"], *pod.get("initContainers", [])]]


class TestManifests:
    """What the chart makes of each set of values."""

    @each_set
    def test_are_accepted_by_kubernetes_schemas(self, values):
        """Nothing is unknown, misplaced or of the wrong type, in each version that is supported."""
        manifests = rendered(values)

        for manifest in manifests:
            for version in KUBERNETES if manifest["kind"] not in CUSTOM else ():
                kubernetes_validate.validate(manifest, version, strict=True)
        assert len(manifests) >= 3

    @each_set
    def test_are_accepted_by_helms_linter(self, values):
        """There is no warning and no error."""
        done = helm("lint", values=values)

        assert done.returncode == 0, done.stdout
        assert "WARNING" not in done.stdout

    @each_set
    def test_give_no_container_more_than_it_needs(self, values):
        """No root, no capability, no writable root file system, and limits of what it takes."""
        manifests = rendered(values)

        for container in containers(manifests):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["limits"].keys() == {"cpu", "memory"}
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}
            assert re.search(r"(:\d+\.\d+\.\d+|@sha256:[0-9a-f]{64})$", container["image"])
        for deployment in of_kind(manifests, "Deployment").values():
            pod = deployment["spec"]["template"]["spec"]
            assert pod["securityContext"]["runAsNonRoot"] is True
            assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
            assert pod["terminationGracePeriodSeconds"] == 90

    @each_set
    def test_write_to_volumes_with_a_limit_alone(self, values):
        """/tmp is a volume, for the root file system is read-only."""
        manifests = rendered(values)

        for deployment in of_kind(manifests, "Deployment").values():
            pod = deployment["spec"]["template"]["spec"]
            assert "/tmp" in {mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
            for volume in pod["volumes"]:
                assert "sizeLimit" in volume.get("emptyDir", {"sizeLimit": None})

    @each_set
    def test_shut_the_network_but_for_what_is_named(self, values):
        """One policy covers each pod of the release; nobody reaches a pod without being named."""
        manifests = rendered(values)
        name = values.get("fullnameOverride", "demo-sleeper")
        policies = of_kind(manifests, "NetworkPolicy")
        selected = policies[name]["spec"]["podSelector"]["matchLabels"].items()
        egress = policies[name]["spec"]["egress"]
        allowed = values.get("networkPolicy", {})

        assert policies[name]["spec"]["policyTypes"] == ["Ingress", "Egress"]
        assert "ingress" not in policies[name]["spec"]
        assert [port["port"] for rule in egress for port in rule["ports"]] == [
            *(53, 53),
            *allowed.get("egressPorts", [443]),
            *([80] if "podIdentity" in allowed else []),
        ]
        assert (f"{name}-server" in policies) == ("serverFrom" in allowed)
        assert (f"{name}-serve" in policies) == ("metricsFrom" in allowed)
        for deployment in of_kind(manifests, "Deployment").values():
            labels = deployment["spec"]["template"]["metadata"]["labels"]
            assert selected <= labels.items()

    @each_set
    def test_have_commands_that_sleeper_knows(self, values):
        """Each command is parsed by `sleeper` with its options, and each kind is one of its own."""
        commands = {
            (*container["command"], *container.get("args", []))
            for container in containers(rendered(values))
            if container["command"][0] == "sleeper"
        }

        for command in commands:
            done = sleeper(*command[1:], "--help")
            assert done.exit_code == 0, done.stderr
            options = {word for word in command if word.startswith("--")} - {"--log-format"}
            assert all(option in done.stdout for option in options)
        assert commands


class TestChoices:
    """What single values change."""

    def test_only_spark_is_given_the_api(self):
        """Only the workers of bulk imports have a token of the API, and only with Spark."""
        manifests = rendered(VALUES["workers on AWS"])
        with_token = {
            name
            for name, each in of_kind(manifests, "Deployment").items()
            if each["spec"]["template"]["spec"]["automountServiceAccountToken"]
        }

        assert with_token == {"demo-sleeper-bulk-import"}
        assert of_kind(manifests, "Role").keys() == {"demo-sleeper-spark"}
        assert of_kind(rendered(VALUES["least"]), "Role") == {}

    def test_workers_follow_their_queue(self):
        """Each way to scale watches the queue of its kind; a fixed number is left to nobody."""
        manifests = rendered(VALUES["workers on AWS"])
        deployments = of_kind(manifests, "Deployment")
        scaled = of_kind(manifests, "ScaledObject")
        (by_metric,) = of_kind(manifests, "HorizontalPodAutoscaler").values()

        (sqs,) = scaled["demo-sleeper-ingest"]["spec"]["triggers"]
        (prometheus,) = scaled["demo-sleeper-query"]["spec"]["triggers"]
        assert sqs["metadata"]["queueURL"] == SQS
        assert 'sleeper_queue_messages_ready{queue="query"}' in prometheus["metadata"]["query"]
        assert by_metric["spec"]["scaleTargetRef"]["name"] == "demo-sleeper-export"
        assert {name for name, each in deployments.items() if "replicas" in each["spec"]} == {
            "demo-sleeper-serve",
            "demo-sleeper-compaction",
            "demo-sleeper-bulk-import",
        }

    def test_compactions_are_scaled_by_a_metric_that_there_is(self):
        """`serve` only plans them, counts them in a metric, and that one is asked for."""
        manifests = rendered(VALUES["what platform teams set"])
        (scaled,) = of_kind(manifests, "ScaledObject").values()
        (serve,) = pod_of(manifests, "rows-serve")["containers"]
        figures = TableFigures(clock_of(lambda: 0.0))
        table = library.connect("memory://").create_table("t", SCHEMA, row_keys=["id"])
        figures.note("t", 1, table.report_files)
        figures.note_compactions("t", 2)
        instance = library.connect("memory://")
        told = Metrics(lambda: instance, NoWorkers, figures, clock_of(lambda: 0.0)).text()

        (trigger,) = scaled["spec"]["triggers"]
        name = re.fullmatch(r"sum\((\w+)\)", trigger["metadata"]["query"])[1]
        assert "--leave-compactions" in serve["args"]
        assert f'{name}{{table="t"}} 2' in told

    def test_jobs_on_a_volume_are_shared_on_one_node(self):
        """The server runs where `serve` does, beside what the user asked for, and both mount it."""
        manifests = rendered(VALUES["jobs on a volume"])
        (claim,) = of_kind(manifests, "PersistentVolumeClaim").values()
        serve, server = (pod_of(manifests, f"demo-sleeper-{name}") for name in ("serve", "server"))
        near = server["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]

        assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
        assert claim["spec"]["storageClassName"] == "fast"
        for pod in (serve, server):
            (volume,) = (each for each in pod["volumes"] if each["name"] == "jobs")
            assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
            mounts = pod["containers"][0]["volumeMounts"]
            assert {"name": "jobs", "mountPath": "/var/lib/sleeper"} in mounts
        assert [each["topologyKey"] for each in near] == [
            "topology.kubernetes.io/zone",
            "kubernetes.io/hostname",
        ]
        selected = near[1]["labelSelector"]["matchLabels"].items()
        (deployment,) = (
            each
            for name, each in of_kind(manifests, "Deployment").items()
            if name == "demo-sleeper-serve"
        )
        assert selected <= deployment["spec"]["template"]["metadata"]["labels"].items()

    def test_what_platform_teams_set_is_in_every_pod(self):
        """Labels, annotations, spread, priority, volumes and variables; selectors stay."""
        manifests = rendered(VALUES["what platform teams set"])
        (monitor,) = of_kind(manifests, "PodMonitor").values()

        for name, deployment in of_kind(manifests, "Deployment").items():
            template = deployment["spec"]["template"]
            (container,) = template["spec"]["containers"]
            assert name.startswith("rows-")
            assert template["metadata"]["annotations"] == {"sidecar": "none"}
            assert {"team": "data", "mesh": "off"}.items() <= template["metadata"]["labels"].items()
            assert template["spec"]["priorityClassName"] == "batch"
            assert len(template["spec"]["topologySpreadConstraints"]) == 1
            assert "certificates" in {each["name"] for each in container["volumeMounts"]}
            assert container["envFrom"] == [{"configMapRef": {"name": "variables"}}]
            assert "team" not in deployment["spec"]["selector"]["matchLabels"]
        assert {each["metadata"]["labels"]["team"] for each in manifests} == {"data"}
        assert monitor["metadata"]["labels"]["release"] == "prometheus"
        selected = monitor["spec"]["selector"]["matchLabels"].items()
        serve = of_kind(manifests, "Deployment")["rows-serve"]["spec"]["template"]
        assert selected <= serve["metadata"]["labels"].items()
        assert of_kind(manifests, "HorizontalPodAutoscaler").keys() == {"rows-server"}

    def test_a_server_has_tokens_and_tls(self):
        """It reads a file of tokens that it alone may read, and is probed by HTTPS."""
        manifests = rendered(VALUES["a server beside a store of one's own"])
        pod = of_kind(manifests, "Deployment")["demo-sleeper-server"]["spec"]["template"]["spec"]
        (copied,) = pod["initContainers"]
        (server,) = pod["containers"]

        assert copied["command"][:3] == ["install", "-m", "600"]
        assert server["livenessProbe"]["httpGet"]["scheme"] == "HTTPS"
        assert server["args"][2:4] == ["--tokens", "/tokens/tokens.json"]
        assert of_kind(manifests, "Ingress").keys() == {"demo-sleeper-server"}
        assert pod["serviceAccountName"] == "mine"

    def test_the_role_of_aws_is_on_the_account(self):
        """The annotation by which EKS gives a role is on the service account that pods have."""
        (account,) = of_kind(rendered(VALUES["workers on AWS"]), "ServiceAccount").values()

        assert "eks.amazonaws.com/role-arn" in account["metadata"]["annotations"]

    def test_the_version_is_that_of_the_package(self):
        """A release changes both."""
        chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
        version = re.search(
            r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE
        )[1]

        assert (chart["version"], chart["appVersion"]) == (version, version)


def pod_of(manifests: list[dict], name: str) -> dict:
    """Return the pod of a Deployment."""
    return of_kind(manifests, "Deployment")[name]["spec"]["template"]["spec"]


LEAST = VALUES["least"]
REFUSED = {
    "workers beside jobs on a volume": (
        {**LEAST, "jobsVolume": {"enabled": True}, "workers": {"ingest": {}}},
        "workers.ingest: pods share no file",
    ),
    "no instance": ({"image": IMAGE}, "/instance"),
    "a folder": ({**LEAST, "instance": "/data/demo"}, "does not match pattern '^(s3|s3a|aws)://"),
    "no image": ({"instance": "s3://bucket/demo"}, "/image/repository"),
    "the newest image": ({**LEAST, "image": {**IMAGE, "tag": "latest"}}, "/image/tag"),
    "a misspelt value": ({**LEAST, "server": {"enable": True}}, "'enable' not allowed"),
    "an unknown kind": ({**LEAST, "workers": {"ingests": {}}}, "'ingests'"),
    "a server without tokens": ({**LEAST, "server": {"enabled": True}}, "/server/tokensSecret"),
    "an ingress without TLS": (
        {
            **LEAST,
            "server": {
                "enabled": True,
                "tokensSecret": "tokens",
                "ingress": {"enabled": True, "host": "sleeper.example.com"},
            },
        },
        "/server/ingress/tlsSecret",
    ),
    "scaling without a queue": (
        {**LEAST, "workers": {"ingest": {"autoscaling": {"by": "keda-sqs", "max": 3}}}},
        "missing properties 'queueUrl', 'region'",
    ),
    "no limits": (
        {**LEAST, "workers": {"ingest": {"resources": {"requests": {"cpu": 1, "memory": "1Gi"}}}}},
        "missing property 'limits'",
    ),
}


@pytest.mark.parametrize(("values", "said"), REFUSED.values(), ids=REFUSED)
def test_wrong_values_are_refused(values, said):
    """The schema refuses them before anything is made, and names the value."""
    done = helm("template", "demo", "data", values=values)

    assert done.returncode == 1
    assert said in done.stderr

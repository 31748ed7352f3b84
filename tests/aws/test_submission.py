"""Jobs on the wire to AWS: what a service is really sent, and what becomes of its answers."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import kubernetes_validate
import pytest

from sleeper.errors import MissingExtra, SubmissionFailed
from sleeper.spark.submit.aws_calls import account_quota, count_steps
from sleeper.spark.submit.eks import Eks, execution_name
from sleeper.spark.submit.emr import EbsVolumes, Emr
from sleeper.spark.submit.emr_serverless import EmrServerless
from sleeper.spark.submit.request import DriverCall
from sleeper.spark.submit.send import send
from tests.contracts.s3_server import s3_server
from tests.unit.spark.submit.test_eks import MACHINE

__all__ = ["s3_server"]

ROLE = "arn:aws:iam::123456789012:role/jobs"
CALL = DriverCall(
    name="sleeper-i-trips-june",
    arguments=("bulk_import/june-run.json", "--instance", "s3://bucket/instance"),
    spark_conf={"spark.a": "b c"},
    environment="s3://bucket/env",
)
MACHINES = {
    "instance.architecture": "arm64",
    "master.arm.instance.types": "m7g.xlarge",
    "executor.arm.instance.types": "m7g.4xlarge,2",
    "executor.market.type": "SPOT",
    "executor.initial.capacity": "2",
    "executor.max.capacity": "10",
    "release.label": "emr-spark-8.0.0",
}
STARTED = {"applicationId": "00abc", "jobRunId": "00run", "arn": "arn:aws:x"}


MACHINE_ARN = "arn:aws:states:eu-west-2:123456789012:stateMachine:eks"
EXECUTION = "arn:aws:states:eu-west-2:123456789012:execution:eks"
NAME = execution_name("t1", "june")
TAKEN = {"__type": "ExecutionAlreadyExists", "message": "Execution Already Exists"}


class Service:
    """A server that keeps what it is sent and answers what it is told to."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], dict]] = []
        self.answers: list[tuple[int, dict, dict[str, str]]] = []
        service = self

        class Answering(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                service.requests.append((self.path, dict(self.headers), json.loads(body)))
                status, answer, headers = service.answers.pop(0)
                text = json.dumps(answer).encode()
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(text))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, status: int, body: dict, **headers: str) -> None:
        """Add an answer; they are given in order."""
        self.answers.append((status, body, headers))


@pytest.fixture
def credentials(monkeypatch, tmp_path):
    """An account that is nobody's, and nothing of this machine's own."""
    if importlib.util.find_spec("boto3") is None:
        pytest.skip("boto3 is not installed")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def service(credentials):
    """A server in the place of AWS."""
    running = Service()
    thread = Thread(target=running.server.serve_forever)
    thread.start()
    yield running
    running.server.shutdown()
    running.server.server_close()
    thread.join()


def serverless(service: Service):
    """The call that starts a job on EMR Serverless."""
    cluster = EmrServerless(
        application_id="00abc",
        execution_role_arn=ROLE,
        region="eu-west-2",
        endpoint_url=service.url,
    )
    return cluster.request(CALL, "run")


def emr(url: str, **more):
    """The call that makes a cluster, or adds a step."""
    cluster = Emr(region="eu-west-2", endpoint_url=url, **more)
    return cluster.request(CALL, MACHINES.__getitem__)


def eks(url: str, machine: str = MACHINE_ARN):
    """The call that starts an execution."""
    cluster = Eks(state_machine_arn=machine, region="eu-west-2", endpoint_url=url)
    return cluster.request(CALL, table_id="t1", job_id="june", run_id="run")


class TestEmrServerless:
    """StartJobRun, as the service gets it."""

    def test_the_account_is_the_one_the_environment_names_now(self, service, monkeypatch):
        """Whatever session this process began earlier."""
        import boto3  # noqa: PLC0415 - an extra

        earlier = boto3.session.Session("EARLIER", "secret")
        monkeypatch.setattr(boto3, "DEFAULT_SESSION", earlier)
        service.answer(200, STARTED)

        send(serverless(service))

        ((_, headers, _),) = service.requests
        assert "Credential=AKIDEXAMPLE/" in headers["Authorization"]

    def test_what_is_sent(self, service):
        """A signed request; the answer's id is what was started."""
        service.answer(200, STARTED)

        started = send(serverless(service))

        ((path, headers, body),) = service.requests
        assert started == "00run"
        assert path == "/applications/00abc/jobruns"
        assert headers["Authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")
        assert "/eu-west-2/emr-serverless/aws4_request" in headers["Authorization"]
        assert body["clientToken"] == "run"
        assert body["executionRoleArn"] == ROLE
        assert body["jobDriver"]["sparkSubmit"]["entryPointArguments"] == [*CALL.arguments]
        assert "'spark.a=b c'" in body["jobDriver"]["sparkSubmit"]["sparkSubmitParameters"]

    def test_a_refusal_is_told_in_the_services_words(self, service):
        """Trying again would not help."""
        service.answer(
            400,
            {"message": "Application 00abc is not of type SPARK"},
            **{"x-amzn-ErrorType": "ValidationException"},
        )

        with pytest.raises(SubmissionFailed, match="ValidationException: Application") as caught:
            send(serverless(service))

        assert not caught.value.retryable
        assert len(service.requests) == 1

    def test_a_busy_service_is_asked_again_with_the_same_token(self, service):
        """So it cannot start the job twice."""
        service.answer(500, {"message": "sorry"}, **{"x-amzn-ErrorType": "InternalServerException"})
        service.answer(200, STARTED)

        assert send(serverless(service)) == "00run"
        assert [body["clientToken"] for _, _, body in service.requests] == ["run", "run"]

    def test_a_service_that_is_not_there(self, credentials):
        """May be there later."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
        cluster = Emr(region="eu-west-2", endpoint_url=nobody)

        with pytest.raises(SubmissionFailed, match="emr could not be asked") as caught:
            send(cluster.request(CALL, MACHINES.__getitem__))

        assert caught.value.retryable


class TestEmr:
    """RunJobFlow and AddJobFlowSteps, as the service gets them."""

    def test_a_cluster_is_asked_for_once(self, service):
        """There is no token to make a second call harmless, so there is no second call."""
        service.answer(500, {"__type": "InternalServerException", "message": "sorry"})

        with pytest.raises(SubmissionFailed, match="InternalServerException") as caught:
            send(emr(service.url))

        assert caught.value.retryable
        assert len(service.requests) == 1

    def test_a_step_goes_to_a_cluster_that_runs(self, service):
        """The answer's step is what was started."""
        service.answer(200, {"StepIds": ["s-1"]})

        started = send(emr(service.url, cluster_id="j-1"))

        ((_, headers, body),) = service.requests
        assert started == "s-1"
        assert headers["X-Amz-Target"] == "ElasticMapReduce.AddJobFlowSteps"
        assert body["JobFlowId"] == "j-1"
        assert body["Steps"][0]["HadoopJarStep"]["Args"][-3:] == [*CALL.arguments]

    def test_an_emulator_takes_both(self, ministack):
        """A cluster that is made has the name, the release and the step that were asked for."""
        import boto3  # noqa: PLC0415 - an extra

        cluster = send(emr(ministack))
        step = send(emr(ministack, cluster_id=cluster))

        client = boto3.client("emr", region_name="eu-west-2", endpoint_url=ministack)
        made = client.describe_cluster(ClusterId=cluster)["Cluster"]
        steps = client.list_steps(ClusterId=cluster)["Steps"]
        assert (made["Name"], made["ReleaseLabel"]) == (CALL.name, "emr-spark-8.0.0")
        assert {each["Name"] for each in steps} == {CALL.name}
        assert step in [each["Id"] for each in steps]

    def test_a_running_cluster_is_found_by_its_name(self, ministack):
        """Its id is looked up when the step is sent; a name that is not there is told."""
        import boto3  # noqa: PLC0415 - an extra

        client = boto3.client("emr", region_name="eu-west-2", endpoint_url=ministack)
        ebs = EbsVolumes(size_gb=100, volume_type="gp3", per_instance=2)
        asked = emr(ministack, ebs=ebs, key_pair="ours", security_group="sg-1").parameters
        alive = {**asked["Instances"], "KeepJobFlowAliveWhenNoSteps": True}
        made = client.run_job_flow(**{**asked, "Name": "kept", "Instances": alive})["JobFlowId"]

        step = send(emr(ministack, cluster_name="kept"))

        assert step in [each["Id"] for each in client.list_steps(ClusterId=made)["Steps"]]
        with pytest.raises(SubmissionFailed, match="no running cluster of EMR is named 'none'"):
            send(emr(ministack, cluster_name="none"))

    def test_two_clusters_of_one_name_are_told(self, service):
        """Their ids are named, and no step is sent."""
        clusters = [{"Id": f"j-{n}", "Name": "kept"} for n in (1, 2)]
        service.answer(200, {"Clusters": clusters})

        with pytest.raises(SubmissionFailed, match=r"2 running clusters .* j-1, j-2"):
            send(emr(service.url, cluster_name="kept"))

        assert len(service.requests) == 1

    def test_steps_are_counted_that_wait_or_run(self, service):
        """On a cluster that is known by its name."""
        service.answer(200, {"Clusters": [{"Id": "j-1", "Name": "kept"}]})
        states = ("PENDING", "RUNNING", "COMPLETED")
        service.answer(200, {"Steps": [{"Status": {"State": state}} for state in states]})

        assert count_steps("kept", region="eu-west-2", endpoint_url=service.url) == 2
        assert service.requests[1][2]["ClusterId"] == "j-1"
        assert set(service.requests[1][2]["StepStates"]) == {"PENDING", "RUNNING", "CANCEL_PENDING"}

    def test_a_cluster_that_takes_no_more_steps_is_full(self, service):
        """EMR's own limit, in its words: the job only waits."""
        told = "Maximum number of active steps(State = 'Running') for cluster exceeded."
        service.answer(400, {"__type": "ValidationException", "message": told})

        with pytest.raises(SubmissionFailed, match="Maximum number") as caught:
            send(emr(service.url, cluster_id="j-1"))

        assert caught.value.is_full
        assert caught.value.retryable


class TestQuotas:
    """What an account may have, from Service Quotas."""

    def test_the_quota_of_the_account_is_asked_for_by_its_codes(self, service):
        """Given an answer, then its value counts."""
        service.answer(200, {"Quota": {"QuotaCode": "L-1", "Value": 64.0}})

        found = account_quota("fargate", "L-1", region="eu-west-2", endpoint_url=service.url)

        assert found == 64
        assert service.requests[0][2] == {"ServiceCode": "fargate", "QuotaCode": "L-1"}

    def test_a_refusal_is_no_failure(self, service, caplog):
        """Given a role that may not ask, then it is asked once, and nothing is known."""
        caplog.set_level("INFO", "sleeper")
        service.answer(400, {"__type": "AccessDeniedException", "message": "not allowed"})

        found = account_quota("fargate", "L-1", region="eu-west-2", endpoint_url=service.url)

        assert found is None
        assert len(service.requests) == 1
        assert "the quota L-1 of fargate is not known" in caplog.text

    def test_without_an_answer_it_is_not_known(self, credentials):
        """Given nobody who listens, then a job is sent all the same."""
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        assert account_quota("fargate", "L-1", region="eu-west-2", endpoint_url=url) is None


class TestEks:
    """StartExecution: a job that goes on already is not started again."""

    def test_a_job_is_started_once_while_it_goes_on(self, service):
        """The name is taken, by an execution that runs: that one is what was started."""
        service.answer(400, TAKEN)
        service.answer(200, {"status": "RUNNING"})

        assert send(eks(service.url)) == f"{EXECUTION}:{NAME}"
        assert [body.get("name") for _, _, body in service.requests] == [NAME, None]
        assert service.requests[1][2]["executionArn"] == f"{EXECUTION}:{NAME}"

    def test_a_job_whose_execution_failed_is_started_again(self, service):
        """Under the next name, as AWS keeps the first one for 90 days."""
        service.answer(400, TAKEN)
        service.answer(200, {"status": "FAILED"})
        service.answer(200, {"executionArn": "second"})

        assert send(eks(service.url)) == "second"
        assert service.requests[2][2]["name"] == f"{NAME}-2"

    def test_a_job_that_ended_too_often_is_refused(self, service):
        """Its name has a largest number."""
        for _ in range(99):
            service.answer(400, TAKEN)
            service.answer(200, {"status": "ABORTED"})

        with pytest.raises(SubmissionFailed, match=r"99 times in 90 days: .* another job id"):
            send(eks(service.url))

    def test_an_emulator_takes_the_state_machine_and_a_job(self, ministack):
        """Given the state machine, then a job is an execution, and its input is what was sent."""
        import boto3  # noqa: PLC0415 - an extra

        client = boto3.client("stepfunctions", region_name="eu-west-2", endpoint_url=ministack)
        definition = json.dumps(MACHINE.definition())
        found = client.validate_state_machine_definition(definition=definition)
        assert found["result"] == "OK"
        made = client.create_state_machine(name="eks", definition=definition, roleArn=ROLE)
        request = eks(ministack, made["stateMachineArn"])

        started = send(request)

        execution = client.describe_execution(executionArn=started)
        assert execution["name"] == NAME
        assert json.loads(execution["input"]) == json.loads(request.parameters["input"])

    @pytest.mark.parametrize(
        ("state", "answer", "following"),
        [
            ("MakeAccount", {"result": "{}"}, "MakeRole"),
            ("MakeAccount", {"errorOutput": {"error": "EKS.409"}}, "MakeRole"),
            ("MakeBinding", {"errorOutput": {"error": "EKS.409"}}, "RunDriver"),
            ("RunDriver", {"result": "{}"}, "DeleteJob"),
            ("RunDriver", {"errorOutput": {"error": "States.TaskFailed"}}, "DeleteFailedJob"),
            ("RunDriver", {"errorOutput": {"error": "States.Timeout"}}, "DeleteFailedJob"),
            ("DeleteJob", {"errorOutput": {"error": "EKS.404"}}, "Done"),
            ("DeleteFailedJob", {"result": "{}"}, "Failed"),
        ],
    )
    def test_each_state_goes_on_as_it_should(self, ministack, state, answer, following):
        """Given what Kubernetes answers, by an emulator's own engine of states."""
        import boto3  # noqa: PLC0415 - an extra
        from botocore.config import Config  # noqa: PLC0415 - the same

        plain = Config(inject_host_prefix=False)  # the emulator has one name
        client = boto3.client(
            "stepfunctions", region_name="eu-west-2", endpoint_url=ministack, config=plain
        )

        tried = client.test_state(
            definition=json.dumps(MACHINE.definition()),
            stateName=state,
            input=eks(ministack).parameters["input"],
            mock=answer,
            inspectionLevel="DEBUG",
        )

        assert tried["nextState"] == following
        asked = json.loads(tried["inspectionData"]["afterParameters"])
        if state == "RunDriver":
            kubernetes_validate.validate(asked["Job"], "1.35", strict=True)
            assert asked["Job"]["metadata"]["name"] == json.loads(tried["output"])["pod"]
        if state == "DeleteJob":
            assert asked["Path"].startswith("/apis/batch/v1/namespaces/sleeper/jobs/job-june-")


class TestSurroundings:
    """What has to be on the machine."""

    def test_a_region_is_needed(self, service):
        """The message is botocore's own."""
        request = Emr(endpoint_url=service.url).request(CALL, MACHINES.__getitem__)

        with pytest.raises(SubmissionFailed, match="emr could not be asked: You must specify"):
            send(request)

    def test_an_endpoint_is_a_url(self, credentials):
        """Anything else is refused with what was given."""
        with pytest.raises(SubmissionFailed, match="nowhere"):
            send(emr("nowhere"))

    def test_boto3_is_an_extra(self, monkeypatch):
        """The message says how to install it."""
        monkeypatch.setitem(sys.modules, "boto3", None)

        with pytest.raises(MissingExtra, match=r"pip install 'sleeper-store\[aws\]'"):
            send(emr("http://127.0.0.1:1"))


@pytest.fixture
def ministack(s3_server, credentials):
    """An emulator, which knows EMR, though not EMR Serverless, with an account to ask it by."""
    return s3_server.endpoint

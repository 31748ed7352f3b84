"""Functions as processes: started by the image's entry point, killed, and called again."""

from __future__ import annotations

import random
import time

import pytest

from sleeper.model.jobs.kinds import QueueName
from sleeper.model.jobs.query_statuses import QueryState
from sleeper.model.jobs.statuses import JobState
from tests.aws.lambdas.functions import (
    aws_endpoint,
    bucket,
    client,
    functions_of,
    instance,
    s3_credentials,
    s3_server,
)
from tests.aws.lambdas.runtime_api import function_process, runtime_api
from tests.contracts.jobs.lambda_records import records_from
from tests.patience import PATIENCE_S
from tests.soak import SOAK
from tests.stories.test_ingest_jobs import work, written

__all__ = [
    "aws_endpoint",
    "bucket",
    "client",
    "functions_of",
    "instance",
    "s3_credentials",
    "s3_server",
]

KILLS = 40 if SOAK else 2


def test_the_entry_point_of_the_image_answers_an_event(instance, aws_endpoint):
    """Given a query in the queue, when Lambda starts the process, then it is answered."""
    instance.table("numbers").ingest([{"id": "a", "n": 1}])
    instance.jobs.submit_query("numbers", query_id="q", key="a")
    queue = instance.jobs.stores.queue(QueueName.QUERY)
    records = records_from(queue.urls()[0], endpoint=aws_endpoint)

    with runtime_api() as api, function_process(api, "query"):
        api.call("first", {"Records": records})
        answered = api.answers.get(timeout=PATIENCE_S)
        api.call("second", {"Records": []})
        again = api.answers.get(timeout=PATIENCE_S)
        api.call("third", {"no": "records"})
        refused = api.answers.get(timeout=PATIENCE_S)

    assert answered == ("first", "response", {"batchItemFailures": []})
    assert again == ("second", "response", {"batchItemFailures": []})
    assert refused[:2] == ("third", "error")
    assert "the event has no Records" in refused[2]["errorMessage"]
    assert instance.jobs.query("q").state is QueryState.COMPLETED
    assert instance.jobs.query("q").rows == 1


@pytest.mark.soak
def test_a_function_that_is_killed_at_any_point_loses_and_doubles_no_row(
    instance, client, aws_endpoint, tmp_path
):
    """Given commits that a killed process may have made, when they come again, then each is once."""
    instance.table("numbers").set_properties(
        {"sleeper.table.statestore.commit.async.enabled": "true"}
    )
    queue = instance.jobs.stores.queue(QueueName.COMMIT)
    draw, jobs = random.Random(20261122), []
    for number in range(KILLS):
        path = written(tmp_path / f"{number}.parquet", number)
        jobs.append(instance.jobs.submit_ingest("numbers", path))
        work(instance)
        with runtime_api() as api, function_process(api, "commit") as process:
            api.call(str(number), {"Records": _records(queue, aws_endpoint)})
            api.taken.get(timeout=PATIENCE_S)
            time.sleep(draw.uniform(0, 1.5))
            process.kill()

    with runtime_api() as api, function_process(api, "commit"):
        while records := _records(queue, aws_endpoint):
            api.call("last", {"Records": records})
            found = api.answers.get(timeout=PATIENCE_S)
            assert found == ("last", "response", {"batchItemFailures": []})
            for record in records:
                client("sqs").delete_message(
                    QueueUrl=queue.urls()[0], ReceiptHandle=record["receiptHandle"]
                )

    assert [instance.jobs.job(each).state for each in jobs] == [JobState.FINISHED] * KILLS
    rows = instance.table("numbers").query().to_arrow()
    assert sorted(rows["n"].to_pylist()) == [*range(KILLS)]


def _records(queue, endpoint):
    """Receive what waits; it is visible again at once, as after the end of a killed call."""
    return records_from(queue.urls()[0], endpoint=endpoint, visibility_s=0)

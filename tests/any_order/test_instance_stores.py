"""A whole instance in a bucket, used in any order, for each kind of state store.

The same stories as in memory, by `tests.any_order.test_instance`: fewer, since each takes seconds.
"""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import Any, ClassVar

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.any_order.dated_objects import DatedObjects
from tests.any_order.instance_model import KINDS, Kind
from tests.any_order.test_instance import AnyOrderOnAnInstance
from tests.any_order.whole_instance import counted_ids, open_instance
from tests.contracts.s3_server import aws_endpoint, s3_credentials, s3_server
from tests.soak import tries

__all__ = ["aws_endpoint", "s3_credentials", "s3_server"]

EXAMPLES = tries(3, soak=2_000)
STEPS = tries(8, soak=16)
CLASSES = (
    "TransactionLogStateStore",
    "DynamoDBTransactionLogStateStore",
    "DynamoDBStateStore",
    "S3StateStore",
)
INSTANCES = count()


@pytest.mark.soak
@pytest.mark.parametrize("class_name", CLASSES)
def test_any_order_of_operations_in_a_bucket_agrees_with_lists_of_rows(
    class_name, s3_server, aws_endpoint
):
    """I3, I5 to I7, I9 to I11: no row is lost or doubled, wherever the state is kept."""
    name = class_name

    class InABucket(AnyOrderOnAnInstance):
        tried: ClassVar[Counter[str]] = Counter()
        kinds: ClassVar[tuple[Kind, ...]] = KINDS
        class_name: ClassVar[str] = name
        keeps_versions: ClassVar[bool] = "Log" in name

        def new_objects(self) -> Any:
            # One each: the emulator goes through all objects of a bucket to list some.
            return DatedObjects(s3_server.objects(s3_server.new_bucket()), lambda: self.now)

        def start(self) -> Any:
            return open_instance(self.objects, self.new_id, lambda: self.now, s3_server.settings)

        def new_ids(self):
            return counted_ids(next(INSTANCES) << 16)

    run_state_machine_as_test(
        InABucket,
        settings=settings(
            max_examples=EXAMPLES, stateful_step_count=STEPS, phases=(Phase.reuse, Phase.generate)
        ),
    )

    print(dict(InABucket.tried))  # noqa: T201 - pytest -s shows how much was tried
    assert InABucket.tried["stories"] >= EXAMPLES

"""A program: a batcher that puts all files into jobs, while others do the same.

    python dynamo_race.py ENDPOINT PREFIX NAME

Writes the jobs it made, with their files, as JSON.
"""

from __future__ import annotations

import json
import sys
from itertools import count

from sleeper.model.jobs.kinds import QueueName
from sleeper.storage.aws.jobs.dynamo_batcher_store import DynamoBatcherStore
from tests.contracts.jobs.batcher_store_contract import NOON
from tests.contracts.servers.dynamo import LastingTables, dynamo_client, new_id, pause


def main(endpoint, prefix, name):
    client = dynamo_client(endpoint)
    tables = LastingTables(lambda: client, prefix, pause=pause, new_id=new_id)
    store = DynamoBatcherStore(tables, now=lambda: NOON)
    jobs = {}
    for n in count():
        pending = store.pending()
        if not pending:
            break
        job_id = f"{name} {n}"
        files = store.assign(job_id, pending[: (40, 7)[n % 2]], QueueName.INGEST)
        jobs[job_id] = [each.path for each in files]
    sys.stdout.write(json.dumps(jobs))


if __name__ == "__main__":
    main(*sys.argv[1:])

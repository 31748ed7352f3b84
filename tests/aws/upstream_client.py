"""Calls upstream's own Python client, in the interpreter that has it: this package is `sleeper` too.

Reads calls from standard input, one a line as JSON, `[method, arguments]`, and writes what each
returned or raised, one a line. Bytes are `{"base64": text}`. Nothing is given to the client but
the instance's id: it finds region, endpoint and credentials as any program does.
"""

import asyncio
import base64
import inspect
import json
import sys

from sleeper.bulk_export import BulkExportQuery
from sleeper.client import SleeperClient
from sleeper.query import Query, Region


def plain(value):
    """Return what JSON has no word for in its place."""
    return {"base64": base64.b64encode(value).decode()}


def write_batches(client, batches, **arguments):
    """Write by the batch writer; return how many rows it counted."""
    with client.create_batch_writer(**arguments) as writer:
        for rows in batches:
            writer.write(rows)
    return writer.num_rows


def bulk_export(client, **arguments):
    """Ask for an export."""
    client.bulk_export(BulkExportQuery(**arguments))


def query_by_sqs(client, regions, **arguments):
    """Ask a query that was put together by hand."""
    made = [Region.from_field_to_tuple(region, **options) for region, options in regions]
    return client.query_by_sqs(Query(regions=made, **arguments))


OWN = {"write_batches": write_batches, "bulk_export": bulk_export, "query_by_sqs": query_by_sqs}


def called(client, method, arguments):
    """Call a method and return what it did."""
    if method in OWN:
        return OWN[method](client, **arguments)
    returned = getattr(client, method)(**arguments)
    return asyncio.run(returned) if inspect.iscoroutine(returned) else returned


def tell(answer):
    """Write what came of a call."""
    sys.stdout.write(json.dumps(answer, default=plain) + "\n")
    sys.stdout.flush()


def main():
    """Answer calls until there are no more."""
    try:
        client = SleeperClient(sys.argv[1])
    except Exception as error:  # noqa: BLE001 - the test says what it expects
        tell({"raised": type(error).__name__, "told": str(error)})
        return
    tell({"returned": None})
    for line in sys.stdin:
        method, arguments = json.loads(line)
        try:
            tell({"returned": called(client, method, arguments)})
        except Exception as error:  # noqa: BLE001 - the test says what it expects
            tell({"raised": type(error).__name__, "told": str(error)})


if __name__ == "__main__":
    main()

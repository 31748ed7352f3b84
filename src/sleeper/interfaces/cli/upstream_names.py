"""Names of upstream's scripts, and what does their work here.

The command line answers a script's name with them, and docs/from-upstream.md lists them.
"""

from __future__ import annotations

from typing import Final

_DEPLOY: Final = "sleeper deploy aws ID"
_BY_PIP: Final = "Install by `pip install`: see the README."
_NO_GENERATOR: Final = (
    "There is no generator of rows: `sleeper ingest` takes any files, and `Table.ingest` any "
    "DataFrame."
)
_NO_JARS: Final = (
    "There are no jars: `sleeper.ecr.repository.prefix` names the images of functions and workers."
)

SCRIPTS: Final[dict[str, str]] = {
    "addTable": "sleeper table add NAME --schema FILE",
    "buildAndDeploy": _DEPLOY,
    "collectGarbage": "sleeper gc TABLE",
    "compactAllFiles": "sleeper compact TABLE --all-files",
    "compactFiles": "sleeper compact TABLE",
    "compactionJobStatusReport": "sleeper jobs list --kind compaction",
    "compactionTaskStatusReport": "sleeper report tasks --kind compaction",
    "createCompactionJobs": "sleeper compact TABLE",
    "deadLettersStatusReport": "sleeper report dead-letters",
    "deleteTable": "sleeper table delete NAME",
    "deploy": _DEPLOY,
    "deployExisting": _DEPLOY,
    "deployNew": _DEPLOY,
    "downloadConfig": "sleeper instance download FOLDER",
    "estimateSplitPoints": "sleeper table estimate-splits FILES --schema FILE --partitions N",
    "exportPartitions": "sleeper table export-splits NAME",
    "filesStatusReport": "sleeper report files TABLE",
    "fullStatusReport": "sleeper report full",
    "ingestBatcherReport": "sleeper batcher report",
    "ingestFiles": "sleeper ingest TABLE FILES",
    "ingestJobStatusReport": "sleeper jobs list",
    "ingestTaskStatusReport": "sleeper report tasks --kind ingest",
    "lambdaQuery": "sleeper jobs send query FILE",
    "listTables": "sleeper table list",
    "partitionsStatusReport": "sleeper report partitions TABLE",
    "pauseSystem": "sleeper pause",
    "putTableOnline": "sleeper table online NAME",
    "query": "sleeper query TABLE",
    "queryTrackerReport": "sleeper jobs queries",
    "reinitialiseTable": "sleeper table reinitialise NAME",
    "renameTable": "sleeper table rename OLD NEW",
    "restartSystem": "sleeper resume",
    "retryMessages": "sleeper queue redrive QUEUE",
    "runBulkExportTasks": "sleeper worker export",
    "runCompactionTask": "sleeper worker compaction",
    "runCompactionTasks": "sleeper worker compaction",
    "sendToIngestBatcher": "sleeper batcher submit TABLE FILES",
    "takeTableOffline": "sleeper table offline NAME",
    "tearDown": "sleeper destroy URL",
}
"""The command for each script that a user of an instance runs."""

OTHER_WAYS: Final[dict[str, str]] = {
    "adminClient": "There are no menus: see `sleeper instance`, `sleeper table` and "
    "`sleeper report`, or the page of `sleeper server start`.",
    "cleanupLogGroups": "Log groups belong to the stacks, and go with them.",
    "generateRandomData": _NO_GENERATOR,
    "ingestRandomData": _NO_GENERATOR,
    "install": _BY_PIP,
    "installJarsFromMaven": "There are no jars: `pip install` brings everything.",
    "setDeployConfig": "`sleeper deploy aws ID --set NAME=VALUE` sets what a deployment needs.",
    "showPageIndexes": "`sleeper verify TABLE` checks the page indexes of all files.",
    "sleeper-install": _BY_PIP,
    "syncJars": _NO_JARS,
    "takeAllTablesOffline": "`sleeper pause` stops services for all tables; "
    "`sleeper table offline NAME` turns one table's off.",
    "uploadArtefacts": _NO_JARS,
    "uploadDockerImagesToEcr": "Push the image by `docker push`: see docs/deploy/images.md.",
    "webSocketQuery": "There are no web sockets: `sleeper query` answers at once, and so does "
    "`sleeper server`.",
}
"""What to do instead of a script that no single command replaces."""


def answer_to(name: str) -> str | None:
    """Return what to do instead of upstream's script `name`, in whatever case; else None.

    >>> answer_to("renameTable.sh")
    "renameTable is a script of upstream's; here it is 'sleeper table rename OLD NEW'."
    """
    wanted = name.removesuffix(".sh").casefold()
    for script, command in SCRIPTS.items():
        if script.casefold() == wanted:
            return f"{script} is a script of upstream's; here it is {command!r}."
    for script, other in OTHER_WAYS.items():
        if script.casefold() == wanted:
            return f"{script} is a script of upstream's. {other}"
    return None


def scripts_table() -> str:
    """Return all scripts and what does their work here, as a table in Markdown, by name."""
    rows = {script: f"`{command}`" for script, command in SCRIPTS.items()} | OTHER_WAYS
    lines = [f"| `{script}.sh` | {rows[script]} |\n" for script in sorted(rows, key=str.casefold)]
    return "".join(["| upstream's script | here |\n|---|---|\n", *lines])

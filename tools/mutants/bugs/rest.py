"""Bugs in the REST server and its client."""

from __future__ import annotations

from ..bug import Bug

TOKENS = ("tests/unit/interfaces/rest/test_tokens.py",)
"""Who may use the server."""
ROWS = ("tests/unit/interfaces/rest/test_rows_by_rest.py",)
"""Queries and uploads."""
SOCKETS = ("tests/unit/interfaces/rest/test_request_limits.py", "-k", "TestAnswers or cut_off")
"""Clients that break off."""
REMOTE = ("tests/unit/interfaces/remote/test_remote_tables.py",)
"""The same calls on a table and by REST."""

STATEMENTS = ("tests/unit/interfaces/rest/test_statements.py",)
"""SQL in processes of its own."""

BUGS = (
    Bug(
        name="statements-without-a-limit",
        breaks="A statement may take all memory of the machine.",
        module="interfaces/rest/statements/process.py",
        right="        resource.setrlimit(resource.RLIMIT_DATA, (limit, most))\n",
        wrong="        assert limit\n",
        tests=(*STATEMENTS, "-k", "sql-body0"),
    ),
    Bug(
        name="statements-outlive-their-clients",
        breaks="A statement goes on when nobody waits for it.",
        module="interfaces/rest/statements/process_pool.py",
        right='["type"] != "http.disconnect"',
        wrong='["type"] != "never"',
        tests=(*STATEMENTS, "-k", "client_leaves"),
    ),
    Bug(
        name="last-bytes-before-the-end-of-a-call",
        breaks="A client that leaves with its answer costs the process, and others wait a second.",
        module="interfaces/rest/statements/process_handle.py",
        right="if seen == self._length:",
        wrong="if seen < 0:",
        tests=(*STATEMENTS, "-k", "one_statement_after"),
    ),
    Bug(
        name="long-questions-in-the-server",
        breaks="Regions of 16 MiB take gigabytes of the server, and nobody can stop it.",
        module="interfaces/rest/routes/rows.py",
        right="int(length) <= _READ_HERE_BYTES",
        wrong="int(length) <= 1 << 30",
        tests=(*STATEMENTS, "-k", "long_question_ends"),
    ),
    Bug(
        name="parts-of-a-question-read-several-versions",
        breaks="A client that sends keys in parts gets rows of several versions.",
        module="interfaces/remote/remote_table.py",
        right='                body = {**part, "as_of": number}\n',
        wrong="                body = {**part}\n",
        tests=(*REMOTE, "-k", "one_version"),
    ),
    Bug(
        name="waiting-connections-keep-others-out",
        breaks="Connections without a request shut a server for everybody.",
        module="interfaces/rest/server.py",
        right="            self._make_room()\n",
        wrong="            pass\n",
        tests=("tests/unit/interfaces/rest/test_request_limits.py", "-k", "keep_nobody_out"),
    ),
    Bug(
        name="two-ends-of-a-body",
        breaks="A proxy and the server may disagree where a request ends.",
        module="interfaces/rest/request_limits.py",
        right='b"transfer-encoding" in names and b"content-length" in names',
        wrong='b"transfer-encoding" in names and not names',
        tests=("tests/unit/interfaces/rest/test_request_limits.py", "-k", "double_headers"),
    ),
    Bug(
        name="bodies-may-trickle",
        breaks="Bodies that come byte by byte keep everybody else out.",
        module="interfaces/rest/request_limits.py",
        right="min(now + self.idle_s, self.ends_at)",
        wrong="now + self.idle_s",
        tests=("tests/hostile/test_clients.py", "-k", "trickle"),
    ),
    Bug(
        name="texts-of-others-begin-lines",
        breaks="A name with a newline makes a line of the log.",
        module="interfaces/cli/stderr.py",
        right="visible(message) if self.with_time else message",
        wrong="message",
        tests=("tests/hostile/test_logs.py", "-k", "begins_no_line"),
    ),
    Bug(
        name="expired-token-accepted",
        breaks="A token is accepted in the second in which it expires.",
        module="interfaces/rest/tokens.py",
        right="expires <= self._now()",
        wrong="expires < self._now()",
        tests=TOKENS,
    ),
    Bug(
        name="other-origins-accepted",
        breaks="A page of another port of this machine may send requests.",
        module="interfaces/rest/authorization.py",
        right="    check_origin(request)\n",
        wrong="",
        tests=TOKENS,
    ),
    Bug(
        name="roles-of-routes-not-asked-for",
        breaks="Any token may do everything, and so may who has none.",
        module="interfaces/rest/authorization.py",
        right="            if role is not None:\n                await check_role(request, role)\n",
        wrong="",
        tests=("tests/unit/interfaces/rest/test_roles_of_routes.py",),
    ),
    Bug(
        name="half-a-document-answered",
        breaks="A JSON document has the first rows only, and does not say so.",
        module="interfaces/rest/answers.py",
        right="            too_many = row_count > limits.answer_rows\n",
        wrong="            too_many = False\n            if row_count > limits.answer_rows:\n"
        "                break\n",
        tests=ROWS,
    ),
    Bug(
        name="uploads-not-validated",
        breaks="Texts of an upload need not be UTF-8.",
        module="interfaces/rest/statements/upload_ingest.py",
        right="validate(full=True)",
        wrong="validate()",
        tests=ROWS,
    ),
    Bug(
        name="cut-off-arrow-accepted",
        breaks="An Arrow stream without its end is ingested.",
        module="interfaces/rest/statements/upload_ingest.py",
        right="    if end != _END_OF_STREAM:\n",
        wrong="    if not end:\n",
        tests=ROWS,
    ),
    Bug(
        name="failed-answer-ended",
        breaks="A stream that fails ends as if it were whole.",
        module="interfaces/rest/answers.py",
        right="            if isinstance(item, BaseException):\n                raise item\n",
        wrong="            if isinstance(item, BaseException):\n                return\n",
        tests=SOCKETS,
    ),
    Bug(
        name="prefix-not-sent",
        breaks="A prefix alone asks for all rows.",
        module="tables/asked_json.py",
        right="    if asked is None and prefix is NOT_GIVEN:\n",
        wrong="    if asked is None:\n",
        tests=REMOTE,
    ),
)

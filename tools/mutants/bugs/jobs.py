"""Bugs in what follows from the events of jobs, in batches of files and in redeliveries."""

from __future__ import annotations

from ..bug import Bug

STATUSES = ("tests/unit/model/jobs/test_statuses.py",)
WINDOWS = ("tests/unit/model/jobs/test_time_windows.py",)
QUERIES = ("tests/unit/model/jobs/test_query_statuses.py",)
QUERIES_BY_REST = ("tests/stories/test_query_jobs_by_rest.py",)
JOBS_BY_REST = ("tests/stories/test_jobs_by_rest.py",)

CSV_OF_BATCHES = ("tests/stories/test_csv_options.py", "-k", "TestJobs")

BATCHES = ("tests/unit/workers/kinds/test_batcher.py",)
REDELIVERY = ("tests/unit/model/jobs/test_redelivery.py",)
MESSAGES = (
    "tests/unit/model/formats/test_ingest_job.py",
    "tests/unit/model/formats/test_query_json.py",
)

MALFORMED = ("tests/stories/test_malformed_messages.py",)
RESULTS = ("tests/unit/jobs/test_job_results.py",)
QUERY_JOBS = ("tests/stories/test_query_jobs.py",)

STATES = ("tests/stories/test_states_of_jobs.py",)

UPSERT_JOBS = ("tests/stories/test_upsert_jobs.py",)

CONDITIONAL_JOBS = ("tests/stories/test_conditional_jobs.py",)

PLACES = ("tests/stories/test_input_places.py",)
"""From where jobs may read."""

BUGS = (
    Bug(
        name="upsert-job-adds-rows",
        breaks="A job that is to replace rows adds its own beside them.",
        module="workers/kinds/ingest.py",
        right="            upsert=job.upsert,\n",
        wrong="            upsert=False,\n",
        tests=UPSERT_JOBS,
    ),
    Bug(
        name="any-name-of-a-file-is-committed",
        breaks="A request with a damaged name of a file is committed, and queries fail.",
        module="tables/commit_requests.py",
        right="        refuse_other_names(transaction)\n",
        wrong="",
        tests=("tests/stories/test_committed_by_request.py",),
    ),
    Bug(
        name="unreadable-request-leaves-its-job",
        breaks="A job stays UNCOMMITTED whose request for the committer cannot be read.",
        module="tables/commit_requests.py",
        right="CommitAnswer(request=request, job_id=request.job_id, refusal=transaction)",
        wrong="CommitAnswer(request=request, refusal=transaction)",
        tests=("tests/stories/test_committed_by_request.py",),
    ),
    Bug(
        name="upsert-job-through-the-committer",
        breaks="Where commits go through the committer, an upsert is committed as an ingest.",
        module="workers/kinds/ingest.py",
        right="is_plain = not self.upsert and self.if_unchanged_since is None",
        wrong="is_plain = self.if_unchanged_since is None",
        tests=UPSERT_JOBS,
    ),
    Bug(
        name="bulk-import-takes-upserts-for-ingests",
        breaks="A bulk import that is to replace rows adds its own beside them.",
        module="workers/kinds/bulk_import.py",
        right="            upsert=self.job.upsert,\n",
        wrong="            upsert=False,\n",
        tests=UPSERT_JOBS,
    ),
    Bug(
        name="bulk-upsert-through-the-committer",
        breaks="Where commits go through the committer, a bulk import that replaces rows fails.",
        module="workers/kinds/bulk_import.py",
        right="is_plain = not self.job.is_committed_by_its_worker",
        wrong="is_plain = True",
        tests=UPSERT_JOBS,
    ),
    Bug(
        name="conditions-of-deletions-forgotten",
        breaks="A job that deletes rows and relies on a version deletes them whatever changed.",
        module="workers/kinds/ingest.py",
        right="if_unchanged_since=job.if_unchanged_since,\n                before",
        wrong="if_unchanged_since=None,\n                before",
        tests=CONDITIONAL_JOBS,
    ),
    Bug(
        name="conditions-of-added-files-forgotten",
        breaks="An ingest job or an upsert that relies on a version adds rows whatever changed.",
        module="workers/kinds/ingest.py",
        right="            if_unchanged_since=job.if_unchanged_since,\n            before",
        wrong="            if_unchanged_since=None,\n            before",
        tests=CONDITIONAL_JOBS,
    ),
    Bug(
        name="conditions-through-the-committer",
        breaks="Where commits go through the committer, a job that relies on a version fails.",
        module="model/formats/ingest_job.py",
        right="self.delete is not None or self.if_unchanged_since is not None",
        wrong="self.delete is not None",
        tests=CONDITIONAL_JOBS,
    ),
    Bug(
        name="batched-upserts-with-other-files",
        breaks="Files that replace rows are in one job with files that add them.",
        module="workers/kinds/batcher.py",
        right="alike.setdefault((text_of_csv(file.csv), file.upsert), []).append(file)",
        wrong="alike.setdefault((text_of_csv(file.csv), False), []).append(file)",
        tests=BATCHES,
    ),
    Bug(
        name="batched-upserts-add-rows",
        breaks="The job that the batcher makes of files that replace rows adds them.",
        module="workers/kinds/batcher.py",
        right="csv=csv, upsert=job.upsert\n",
        wrong="csv=csv\n",
        tests=UPSERT_JOBS,
    ),
    Bug(
        name="places-without-an-end",
        breaks="A job reads a folder whose name only begins as that of a place.",
        module="jobs/input_places.py",
        right="url.startswith(f\"{place.rstrip('/')}/\")",
        wrong="url.startswith(place)",
        tests=PLACES,
    ),
    Bug(
        name="links-of-places-followed",
        breaks="A job reads through a link what lies outside of its places.",
        module="jobs/input_places.py",
        right="            return all(map(is_inside, find_files([path])))\n",
        wrong="            return True\n",
        tests=PLACES,
    ),
    Bug(
        name="job-by-name-alone",
        breaks="A job submitted for a table is run for another that has its name now.",
        module="jobs/submission.py",
        right="message_id = self.send_message(QueueName.INGEST, write_ingest_job(bound))",
        wrong="message_id = self.send_message(QueueName.INGEST, write_ingest_job(job))",
        tests=STATES,
    ),
    Bug(
        name="rejection-of-no-table",
        breaks="A job whose table was deleted is rejected for no table: it stays ACCEPTED.",
        module="workers/worker.py",
        right="table_id=known.table_id or rejection.table_id,",
        wrong="table_id=rejection.table_id,",
        tests=STATES,
    ),
    Bug(
        name="attempts-not-counted",
        breaks="A message that is delivered again has no newer attempt.",
        module="jobs/event_recorder.py",
        right="return 1 + max((event.attempt or 0 for event in self.events), default=0)",
        wrong="return 1",
        tests=STATES,
    ),
    Bug(
        name="attempts-of-silent-tracker",
        breaks="A job whose last attempt could not be counted by its events never ends.",
        module="workers/worker.py",
        right="    return max(known.next_attempt, message.receives)",
        wrong="    return known.next_attempt if message.receives else 0",
        tests=STATES,
    ),
    Bug(
        name="given-up-by-any-message",
        breaks="A failed job that is submitted again is over at once.",
        module="model/jobs/attempts.py",
        right="    if open_messages(attempts):\n        return False\n",
        wrong="",
        tests=STATES,
    ),
    Bug(
        name="dead-letter-untold",
        breaks="A job whose workers were killed never ends.",
        module="jobs/reports.py",
        right="            if letter is not None:\n                ended",
        wrong="            if letter is not None and letter.receives < 1:\n                ended",
        tests=STATES,
    ),
    Bug(
        name="unread-untold",
        breaks="The tracker is silent of a dead letter that could not be looked at.",
        module="workers/worker.py",
        right="        if source.reader.is_tracked:\n            why",
        wrong="        if not source.reader.is_tracked:\n            why",
        tests=STATES,
    ),
    Bug(
        name="request-of-deleted-table-untold",
        breaks="A job stays UNCOMMITTED whose table was deleted before the commit.",
        module="workers/kinds/commit.py",
        right="                self._record_never(each.request, reasons_of(failure))\n",
        wrong="",
        tests=STATES,
    ),
    Bug(
        name="retry-hidden-by-failure",
        breaks="A job that is run again is shown as failed.",
        module="model/jobs/statuses.py",
        right="""        *(JobState.REJECTED, JobState.ACCEPTED, JobState.FAILED),
        *(JobState.IN_PROGRESS, JobState.UNCOMMITTED, JobState.FINISHED),""",
        wrong="""        *(JobState.REJECTED, JobState.ACCEPTED, JobState.IN_PROGRESS),
        *(JobState.FAILED, JobState.UNCOMMITTED, JobState.FINISHED),""",
        tests=STATUSES,
    ),
    Bug(
        name="failure-hidden-by-end",
        breaks="A run whose commit was refused is shown as finished.",
        module="model/jobs/statuses.py",
        right="if JobEventType.FAILED in types:",
        wrong="if JobEventType.FAILED in types and JobEventType.FINISHED not in types:",
        tests=STATUSES,
    ),
    Bug(
        name="part-of-files-committed",
        breaks="A run is shown as finished when the first of its files was added.",
        module="model/jobs/statuses.py",
        right="return files_added(commits) >= max(written)",
        wrong="return files_added(commits) >= min(1, *written)",
        tests=STATUSES,
    ),
    Bug(
        name="commit-counted-twice",
        breaks="Two events of one commit count its files twice.",
        module="model/jobs/statuses.py",
        right="key = event if event.transaction is None else event.transaction",
        wrong="key = event",
        tests=STATUSES,
    ),
    Bug(
        name="tie-by-arrival",
        breaks="Of two events at one time, the one that arrived later counts.",
        module="model/jobs/statuses.py",
        right="set(events),\n        key=lambda event: "
        '(event.at, _ORDER[event.type], event.run_id or "", repr(event)),',
        wrong="dict.fromkeys(events),\n        key=lambda event: event.at,",
        tests=STATUSES,
    ),
    Bug(
        name="given-up-for-ever",
        breaks="A job that was given up, sent again and failed once is shown as over.",
        module="model/jobs/attempts.py",
        right="return last is None or last.has_ended",
        wrong="return any(each.has_ended for each in before)",
        tests=STATUSES,
    ),
    Bug(
        name="unfinished-for-ever",
        breaks="A job that started a month ago and was killed is in every period since.",
        module="model/jobs/time_windows.py",
        right="latest = start + UNFINISHED_FOR if end is None else end",
        wrong="latest = (self.since or start) if end is None else end",
        tests=WINDOWS,
    ),
    Bug(
        name="period-with-both-ends",
        breaks="A job that started at the end of a period is in it.",
        module="model/jobs/time_windows.py",
        right="start < self.until",
        wrong="start <= self.until",
        tests=WINDOWS,
    ),
    Bug(
        name="rows-of-failed-query",
        breaks="A query that failed before its first row is shown as failed in part.",
        module="model/jobs/query_statuses.py",
        right="if failed[-1].rows_written else",
        wrong="if failed[-1].rows_written is not None else",
        tests=QUERIES,
    ),
    Bug(
        name="rows-of-queries-without-transaction",
        breaks="Rows of a query's file do not say which transaction they were read at.",
        module="jobs/job_results.py",
        right="_TRANSACTION: str(rows.transaction)",
        wrong='_TRANSACTION: "0"',
        tests=QUERIES_BY_REST,
    ),
    Bug(
        name="keys-of-query-jobs-left-out-by-rest",
        breaks="A client asks a worker for some keys, and is given the whole table.",
        module="interfaces/remote/remote_jobs.py",
        right="question(schema, key=key, keys=keys, range",
        wrong="question(schema, key=key, range",
        tests=QUERIES_BY_REST,
    ),
    Bug(
        name="lists-of-a-server-end-in-silence",
        breaks="Whoever lists jobs by a server misses those after the first thousand.",
        module="interfaces/remote/remote_jobs.py",
        right='    if found["more"]:',
        wrong="    if False:",
        tests=(*JOBS_BY_REST, "-k", "in_silence"),
    ),
    Bug(
        name="ended-workers-listed-as-unfinished",
        breaks="Workers that ended are shown among those that have not.",
        module="jobs/reports.py",
        right="if not (unfinished and task.is_finished)",
        wrong="if not unfinished or task.is_finished",
        tests=(*JOBS_BY_REST, "-k", "workers_are_told"),
    ),
    Bug(
        name="jobs-of-all-workers-by-rest",
        breaks="A server lists jobs of every worker where those of one are asked for.",
        module="interfaces/rest/routes/jobs.py",
        right="        task_id=task_id,\n",
        wrong="        task_id=None,\n",
        tests=(*JOBS_BY_REST, "-k", "workers_are_told"),
    ),
    Bug(
        name="paths-of-a-client-stay-relative",
        breaks="A worker looks for the files of a client's job in its own working folder.",
        module="interfaces/remote/remote_jobs.py",
        right='            "files": [*checked_paths(files)],\n            "job_id"',
        wrong='            "files": [str(each) for each in files],\n            "job_id"',
        tests=(*JOBS_BY_REST, "-k", "waited_for_by_the_server"),
    ),
    Bug(
        name="results-of-queries-that-went-elsewhere",
        breaks="Rows that went to no file are told to have been deleted.",
        module="jobs/reports.py",
        right="    if place != self.results.query_location(query_id, status.table_id):",
        wrong="    if place == self.results.query_location(query_id, status.table_id):",
        tests=QUERIES_BY_REST,
    ),
    Bug(
        name="dead-letters-of-charged-queues-unseen",
        breaks="Where looks cost money, whoever asks for a job never learns that it was buried.",
        module="jobs/jobs_handle.py",
        right="        if last is not None and abs(now - last) < CHARGED_LOOK:",
        wrong="        if last is None or abs(now - last) < CHARGED_LOOK:",
        tests=("tests/stories/test_states_of_jobs.py", "-k", "charged or costs_money"),
    ),
    Bug(
        name="batch-above-its-bytes",
        breaks="A file passes by a batch that has exactly room for it.",
        module="workers/kinds/batcher.py",
        right="if tree[node] < wanted:",
        wrong="if tree[node] <= wanted:",
        tests=BATCHES,
    ),
    Bug(
        name="batch-of-unlike-files",
        breaks="Files of CSV that are written in different ways are in one job.",
        module="workers/kinds/batcher.py",
        right="alike.setdefault((text_of_csv(file.csv), file.upsert), []).append(file)",
        wrong="alike.setdefault(('', file.upsert), []).append(file)",
        tests=BATCHES,
    ),
    Bug(
        name="options-of-batches-lost",
        breaks="A job of the batcher has no options of CSV.",
        module="workers/kinds/batcher.py",
        right="csv = {} if job.csv is None else job.csv.to_json()",
        wrong="csv = {} if job.csv is None else {}",
        tests=CSV_OF_BATCHES,
    ),
    Bug(
        name="batch-above-its-files",
        breaks="A job has one file more than it may.",
        module="workers/kinds/batcher.py",
        right="is_full = len(batch) >= limits.files_max",
        wrong="is_full = len(batch) > limits.files_max",
        tests=BATCHES,
    ),
    Bug(
        name="batches-lost-on-growth",
        breaks="A batch is forgotten when the list of batches grows, and takes no more files.",
        module="workers/kinds/batcher.py",
        right="self._tree[self._leaves :] + [_CLOSED] * self._leaves",
        wrong="[_CLOSED] * self._leaves * 2",
        tests=BATCHES,
    ),
    Bug(
        name="old-file-waits",
        breaks="A file waits on, however old, while there are too few of them.",
        module="workers/kinds/batcher.py",
        right="if oldest < now - limits.age_max:",
        wrong="if oldest < now - limits.age_max and len(files) >= limits.files_min:",
        tests=BATCHES,
    ),
    Bug(
        name="one-limit-is-enough",
        breaks="Many tiny files become jobs at once, though they are too few bytes.",
        module="workers/kinds/batcher.py",
        right="len(files) >= limits.files_min and enough_bytes",
        wrong="(len(files) >= limits.files_min or enough_bytes)",
        tests=BATCHES,
    ),
    Bug(
        name="bad-input-tried-again",
        breaks="A job with input that nobody can read is tried until its attempts run out.",
        module="model/jobs/redelivery.py",
        right="return not isinstance(error, SleeperError) or error.retryable",
        wrong="return True",
        tests=REDELIVERY,
    ),
    Bug(
        name="refused-commit-is-final",
        breaks="A job whose leaf was split meanwhile is never run again.",
        module="model/jobs/redelivery.py",
        right="""    if isinstance(error, CommitRefused):
        return True
""",
        wrong="",
        tests=REDELIVERY,
    ),
    Bug(
        name="one-attempt-too-many",
        breaks="A job is tried once more than it may.",
        module="model/jobs/redelivery.py",
        right="if receives >= receives_max:",
        wrong="if receives > receives_max:",
        tests=REDELIVERY,
    ),
    Bug(
        name="lease-ends-before-renewal",
        breaks="The message of a long job is delivered again while the job runs.",
        module="model/jobs/settings.py",
        right="keepalive_s=min(float(keepalive_s), visibility_s / _KEEPALIVES),",
        wrong="keepalive_s=float(keepalive_s),",
        tests=("tests/unit/workers/test_open_worker.py",),
    ),
    Bug(
        name="first-reason-only",
        breaks="Of all that is wrong with a message, the first is told.",
        module="model/formats/message_json.py",
        right="raise JobInvalid(self.failures)",
        wrong="raise JobInvalid(self.failures[:1])",
        tests=MESSAGES,
    ),
    Bug(
        name="plain-strings-in-queries",
        breaks="A query of upstream's that leaves the flag out is asked for other keys.",
        module="model/formats/query_json.py",
        right="""        region_from_document(schema, document, base64_strings=True)
        for""",
        wrong="""        region_from_document(schema, document, base64_strings=False)
        for""",
        tests=MESSAGES,
    ),
    Bug(
        name="running-jobs-left-out-of-period",
        breaks="A job that started before a period and still runs is not listed in it.",
        module="jobs/reports.py",
        right="max(since, _FIRST_TIME) - UNFINISHED_FOR",
        wrong="max(since, _FIRST_TIME)",
        tests=("tests/unit/jobs/test_list_jobs.py",),
    ),
    Bug(
        name="resent-dead-letter-given-up",
        breaks="A dead letter that is sent again is shown as given up while it waits.",
        module="model/jobs/attempts.py",
        right="key=lambda each: (each.events[-1].at, each.has_ended)",
        wrong="key=lambda each: (each.has_ended, each.events[-1].at)",
        tests=STATUSES,
    ),
    Bug(
        name="jobs-of-two-instances",
        breaks="An instance uses the file of jobs of another one.",
        module="storage/local/jobs/database.py",
        right="    if known.instance_id != owner.instance_id:\n",
        wrong="    if known.instance_id == owner.url:\n",
        tests=("tests/unit/storage/test_job_places.py",),
    ),
    Bug(
        name="unexpected-error-ends-worker",
        breaks="An error that nobody expected, while a message is read, ends the worker.",
        module="workers/worker.py",
        right="""        except BaseException as failure:
            if ends_process(failure):
                raise
            _log.exception(
                "%s message""",
        wrong="""        except BaseException as failure:
            if ends_process(failure) or True:
                raise
            _log.exception(
                "%s message""",
        tests=MALFORMED,
    ),
    Bug(
        name="panic-ends-worker",
        breaks="A panic of a native library in a job ends the worker.",
        module="errors.py",
        right="    return isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit)",
        wrong="    return not isinstance(error, Exception)",
        tests=MALFORMED,
    ),
    Bug(
        name="name-twice-in-message",
        breaks="Of two values of one name in a message the first is dropped in silence.",
        module="model/formats/message_json.py",
        right="    if len(values) < len(pairs):",
        wrong="    if len(values) > len(pairs):",
        tests=MESSAGES,
    ),
    Bug(
        name="rows-of-another-table",
        breaks="A query id that another table had gives the other table's rows.",
        module="jobs/job_results.py",
        right='    name = uuid.uuid5(_NAMES, f"{table_id}/{query_id}")',
        wrong="    name = uuid.uuid5(_NAMES, query_id)",
        tests=RESULTS,
    ),
    Bug(
        name="rejected-query-takes-its-id",
        breaks="The id of a query that was rejected cannot be used for another table.",
        module="jobs/reports.py",
        right=" for event in events if event.type is JobEventType.STARTED}",
        wrong=" for event in events}",
        tests=QUERY_JOBS,
    ),
)

"""Bugs in bulk imports on platforms: EMR, EMR Serverless and EKS."""

from __future__ import annotations

from ..bug import Bug

_STORIES = ("tests/stories/test_bulk_import_jobs.py",)
_BAD_JOBS = ("tests/unit/spark/submit/test_bad_jobs.py",)
_EXECUTORS = ("tests/unit/spark/submit/test_executors.py",)
_STACKS = ("tests/deploy/stacks/test_bulk_import.py",)

BUGS = (
    Bug(
        name="full-cluster-gets-jobs",
        breaks="A kept cluster of EMR gets one job more than it takes.",
        module="workers/kinds/bulk_import.py",
        right="if under_way >= place.cluster.steps_max:",
        wrong="if under_way > place.cluster.steps_max:",
        tests=_STORIES,
    ),
    Bug(
        name="waiting-for-a-cluster-counts",
        breaks="A job that waits for room on a cluster becomes a dead letter.",
        module="workers/worker.py",
        right="source.queue.release(message.receipt, deferral.delay_s, counted=False)",
        wrong="source.queue.release(message.receipt, deferral.delay_s)",
        tests=_STORIES,
    ),
    Bug(
        name="execution-named-by-run",
        breaks="A message that comes twice starts two executions on EKS.",
        module="spark/submit/eks.py",
        right='"name": execution_name(table_id, job_id),',
        wrong='"name": execution_name(run_id, job_id),',
        tests=("tests/unit/spark/submit/test_eks.py",),
    ),
    Bug(
        name="java-outlives-its-driver",
        breaks="Spark's Java process goes on after a driver that had to be killed.",
        module="spark/submit/driver_process.py",
        right='does not end: killing it", process.pid)\n        _kill_group(process)',
        wrong='does not end: killing it", process.pid)\n        process.kill()',
        tests=_STORIES,
    ),
    Bug(
        name="instance-in-aws-out-of-reach",
        breaks="Jobs of an instance in AWS are refused for every platform.",
        module="spark/submit/submission_check.py",
        right=" and not call.url.startswith(_IN_AWS)",
        wrong="",
        tests=("tests/aws/test_service_models.py",),
    ),
    Bug(
        name="job-not-deleted-after-failure",
        breaks="Pods of a job on EKS that failed stay, and cost.",
        module="spark/submit/eks.py",
        right='"Next": "DeleteFailedJob",',
        wrong='"Next": "Failed",',
        tests=("tests/unit/spark/submit/test_eks.py",),
    ),
    Bug(
        name="roles-for-any-service",
        breaks="The lambda that starts bulk imports may give their roles to any service.",
        module="deploy/stacks/bulk_import.py",
        right=(
            '        {"StringEquals": {"iam:PassedToService": [*to] if len(to) > 1 else to[0]}},\n'
        ),
        wrong="",
        tests=_STACKS,
    ),
    Bug(
        name="misspelt-spark-settings-pass",
        breaks="A misspelt setting of Spark is passed on, and does nothing.",
        module="spark/submit/spark_settings.py",
        right="and (near := one_slip_away(name, known))",
        wrong="and (near := name if name in known else None)",
        tests=_BAD_JOBS,
    ),
    Bug(
        name="values-of-any-kind",
        breaks="A setting of Spark may be a number that is none, below its least, or no size.",
        module="spark/submit/spark_settings.py",
        right="if number is not None and (self.least is None or number >= self.least):",
        wrong="if number is None or (self.least is None or number >= self.least):",
        tests=_BAD_JOBS,
    ),
    Bug(
        name="executors-larger-than-machines",
        breaks="An executor is asked for that fits no machine of EMR's cluster.",
        module="spark/submit/emr.py",
        right="if size_mib > machine.containers_mib:",
        wrong="if size_mib > 2 * machine.memory_mib:",
        tests=_BAD_JOBS,
    ),
    Bug(
        name="driver-not-on-executors-machines",
        breaks="A driver on EMR is not looked at, though it runs beside the executors.",
        module="spark/submit/emr.py",
        right="""        for role in ("driver", "executor"):
            yield from _misfits""",
        wrong="""        for role in ("executor",):
            yield from _misfits""",
        tests=_BAD_JOBS,
    ),
    Bug(
        name="pods-with-too-few-cores",
        breaks="Fargate gives a pod more processors, at their price, than were asked for.",
        module="spark/submit/eks.py",
        right="    if mib / 1024 > most:\n",
        wrong="    if mib / 1024 > largest:\n",
        tests=_BAD_JOBS,
    ),
    Bug(
        name="no-memory-for-python",
        breaks="Executors have no memory for the Python workers that rows pass through.",
        module="spark/submit/conf_check.py",
        right="least = max(_OVERHEAD_MIB_MIN, workers * _WORKER_MIB)",
        wrong="least = 0",
        tests=_BAD_JOBS,
    ),
    Bug(
        name="settings-of-the-platform-pass",
        breaks="A job sets where it runs, though its queue or --submit says it.",
        module="spark/submit/submission_check.py",
        right="if name in owned and (name, text.strip().lower()) not in _AS_IT_IS:",
        wrong="if name in owned and (name, text.strip().lower()) in _AS_IT_IS:",
        tests=_BAD_JOBS,
    ),
    Bug(
        name="max-below-min-executors",
        breaks="A job asks for fewer executors at most than at least.",
        module="spark/submit/conf_check.py",
        right="if count is not None and most is not None and count > most:",
        wrong="if count is not None and most is not None and count < -most:",
        tests=_BAD_JOBS,
    ),
    Bug(
        name="executors-for-no-input",
        breaks="A job of a terabyte asks for as many executors as one of a megabyte.",
        module="spark/submit/executors.py",
        right="return min(EXECUTORS_MAX, max(1, wanted))",
        wrong="return min(EXECUTORS_MAX, 1)",
        tests=_EXECUTORS,
    ),
    Bug(
        name="set-numbers-not-fixed",
        breaks="A number of executors that a job or property sets is only where they begin.",
        module="spark/submit/executors.py",
        right="if enabled in chosen else INSTANCES not in chosen",
        wrong="if enabled in chosen else True",
        tests=_EXECUTORS,
    ),
    Bug(
        name="bound-below-what-is-set",
        breaks="A job with minExecutors is refused for a default that is below it.",
        module="spark/submit/executors.py",
        right="count = max(most, *(each or 1 for each in (least, first, fixed)))",
        wrong="count = most",
        tests=_EXECUTORS,
    ),
    Bug(
        name="unlisted-input-fails-the-job",
        breaks="A job whose files cannot be listed where it is submitted is not submitted.",
        module="spark/submit/submitted_jobs.py",
        right="except (InputNotFound, UrlInvalid, StorageFailed, MissingExtra) as error:",
        wrong="except (InputNotFound, UrlInvalid, MissingExtra) as error:",
        tests=_EXECUTORS,
    ),
    Bug(
        name="refused-quota-fails-the-job",
        breaks="A job is not sent where the quotas of the account may not be read.",
        module="spark/submit/aws_calls.py",
        right='    except (SubmissionFailed, MissingExtra) as error:\n        _log.info("the quota',
        wrong='    except MissingExtra as error:\n        _log.info("the quota',
        tests=("tests/aws/test_submission.py",),
    ),
    Bug(
        name="misspelt-settings-pass-here",
        breaks="A worker without a cluster takes a job whose settings Spark does not have.",
        module="workers/kinds/bulk_import.py",
        right="if checked.before is None and place.cluster is None:",
        wrong="if checked.before is not None and place.cluster is None:",
        tests=_STORIES,
    ),
)

"""Bugs in comparing, deploying and removing the stacks of an instance."""

from __future__ import annotations

from ..bug import Bug

_CHANGES = ("tests/deploy/flow/test_stack_changes.py",)
_REMOVAL = ("tests/deploy/flow/test_removal.py",)
_IMAGES = ("tests/deploy/flow/test_images.py",)
_CHECKS = ("tests/deploy/flow/test_checks.py",)
_PACKAGES = ("tests/deploy/flow/test_spark_packages.py",)

BUGS = (
    Bug(
        name="replacement-loses-nothing",
        breaks="A table that CloudFormation may replace is not said to lose its items.",
        module="deploy/flow/stack_changes.py",
        right="(ChangeKind.REMOVED, ChangeKind.REPLACED) or self.may_be_replaced",
        wrong="(ChangeKind.REMOVED, ChangeKind.REPLACED)",
        tests=_CHANGES,
    ),
    Bug(
        name="change-set-stays",
        breaks="A look at a stack leaves its change set behind.",
        module="deploy/flow/difference.py",
        right="        finally:\n            _forget(client, name)",
        wrong="        finally:\n            pass",
        tests=_CHANGES,
    ),
    Bug(
        name="stacks-of-a-longer-id",
        breaks="An instance takes the stacks of one whose id begins with its own for its own.",
        module="deploy/flow/deployed_stacks.py",
        right='(each.owner == mine or "-" not in each.name.removeprefix(self._prefix))',
        wrong="(True)",
        tests=_CHANGES,
    ),
    Bug(
        name="kept-data-in-a-deleting-stack",
        breaks="A stack that deletes its tables is deleted though they are to be kept.",
        module="deploy/flow/removal.py",
        right="if keeps_data and losing:",
        wrong="if keeps_data and losing and data:",
        tests=_REMOVAL,
    ),
    Bug(
        name="kept-data-goes-the-second-time",
        breaks="A second removal of an instance deletes the data that the first one kept.",
        module="deploy/flow/removal.py",
        right="if keeps_data and data is not None:",
        wrong="if keeps_data and data is None:",
        tests=_REMOVAL,
    ),
    Bug(
        name="processors-are-not-compared",
        breaks="An image without the processor that a task needs is taken for good.",
        module="deploy/flow/images.py",
        right="        missing = self.needs.tasks - self._processors\n",
        wrong="        missing = self.needs.tasks - self._processors - self.needs.tasks\n",
        tests=_IMAGES,
    ),
    Bug(
        name="functions-of-an-index",
        breaks="An index with attestations, which Lambda refuses, is taken for functions.",
        module="deploy/flow/images.py",
        right="        if not self.needs.functions:\n            return\n        wanted",
        wrong="        if self.needs:\n            return\n        wanted",
        tests=_IMAGES,
    ),
    Bug(
        name="tags-are-deployed",
        breaks="A rebuilt image with the same tag changes no function.",
        module="deploy/settings.py",
        right="        return self.digests.get(address, address)\n",
        wrong="        return address\n",
        tests=("tests/deploy/stacks/test_settings.py",),
    ),
    Bug(
        name="concurrency-reserved-twice",
        breaks="What an instance reserves already counts against it when it is deployed again.",
        module="deploy/flow/checks.py",
        right="max(0, unreserved + own - _UNRESERVED_MIN)",
        wrong="max(0, unreserved - _UNRESERVED_MIN)",
        tests=_CHECKS,
    ),
    Bug(
        name="images-without-their-policy",
        breaks="Who deploys may not let Lambda pull the image, so no function can be made.",
        module="deploy/deployer_policy.py",
        right="            yield from _rights(_LET_LAMBDA_PULL, on)\n",
        wrong="            pass\n",
        tests=("tests/deploy/stacks/test_deployer_policy.py",),
    ),
    Bug(
        name="keys-of-others-deleted",
        breaks="Who deploys may delete every key of the account by itself.",
        module="deploy/deployer_policy.py",
        right="    condition = _BY_STACKS if row.unnamed else None\n",
        wrong="    condition = None\n",
        tests=("tests/deploy/stacks/test_deployer_policy.py",),
    ),
    Bug(
        name="policies-a-statement-too-long",
        breaks="A policy is split after it is too long, and IAM refuses it.",
        module="deploy/deployer_policy.py",
        right='        longer = {"Version": "2012-10-17", "Statement": [*groups[-1], each]}\n',
        wrong='        longer = {"Version": "2012-10-17", "Statement": groups[-1]}\n',
        tests=("tests/deploy/stacks/test_deployer_policy.py",),
    ),
    Bug(
        name="half-an-upload-is-taken-for-a-whole-one",
        breaks="After an interrupted upload drivers on EMR find an archive and no script.",
        module="deploy/flow/spark_packages.py",
        right="if not wanted <= {",
        wrong="if not wanted & {",
        tests=_PACKAGES,
    ),
    Bug(
        name="packages-of-running-jobs-deleted",
        breaks="An upgrade takes the packages away from jobs that were started before.",
        module="deploy/flow/spark_packages.py",
        right="others[: 1 - _GENERATIONS]",
        wrong="others[:]",
        tests=_PACKAGES,
    ),
    Bug(
        name="packages-without-pandas",
        breaks="Each import on a cluster without pandas fails: Spark's Python asks for it.",
        module="spark/submit/environment.py",
        right=", *_for_spark(pairs)]",
        wrong=", *[]]",
        tests=("tests/unit/spark/test_environment.py",),
    ),
    Bug(
        name="one-region-over-another",
        breaks="An instance that is in another region is taken for none, and deployed again.",
        module="deploy/flow/preparation.py",
        right='        if there in (None, "", here):\n',
        wrong="        if there != here:\n",
        tests=("tests/deploy/flow/test_mistakes.py",),
    ),
    Bug(
        name="nested-stacks-are-not-seen",
        breaks="The data of an instance is removed under its stacks, which are nested in another.",
        module="deploy/flow/removal.py",
        right="    if nesting:\n",
        wrong="    if nesting and found:\n",
        tests=_REMOVAL,
    ),
)

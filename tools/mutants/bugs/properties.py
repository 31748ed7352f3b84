"""Bugs in properties."""

from __future__ import annotations

from ..bug import Bug

SETTINGS = ("tests/stories/test_setting_properties.py", "tests/unit/model/test_given_properties.py")
INSTANCE = ("tests/any_order/test_instance_properties.py",)

BUGS = (
    Bug(
        name="batch-of-the-ratio-not-warned-of",
        breaks="A batch of three files with a ratio of 3 never compacts, and nobody is told.",
        module="model/known_properties/maintenance.py",
        right="self.size_ratio + 1",
        wrong="self.size_ratio",
        tests=(*SETTINGS, "tests/unit/state/plans/test_compactions.py"),
    ),
    Bug(
        name="slip-accepted",
        breaks="A property's name with a letter too many is stored, without effect.",
        module="model/known_properties/given.py",
        right="left[1:] == right or left == right[1:]",
        wrong="left == right[1:]",
        tests=SETTINGS,
    ),
    Bug(
        name="stored-name-judged",
        breaks="A misspelt name that is stored stops every other change of the table.",
        module="tables/change.py",
        right="given=set_now)",
        wrong="given=after)",
        tests=SETTINGS,
    ),
    Bug(
        name="name-of-properties-ignored",
        breaks="A table gets another name than its properties say, and nobody notices.",
        module="tables/create.py",
        right="    _check_agreement(set_now, name, schema)\n",
        wrong="",
        tests=("tests/unit/tables/test_create.py", "-k", "disagree"),
    ),
    Bug(
        name="no-split-points-means-those-of-the-file",
        breaks="An empty list of split points counts as none, and the file's are taken.",
        module="tables/create.py",
        right="    if split_points is None:\n",
        wrong="    if not split_points:\n",
        tests=("tests/unit/tables/test_create.py", "-k", "split_points"),
    ),
    Bug(
        name="properties-not-marked",
        breaks="A change is not seen where its writer was killed before it wrote the copy.",
        module="instance/properties.py",
        right="                self.objects.put(paths.INSTANCE_PROPERTIES, _encoded(marked))\n",
        wrong="                assert marked\n",
        tests=INSTANCE,
    ),
    Bug(
        name="properties-marked-after-the-change",
        breaks="A copy that was written late hides a change of the instance's properties.",
        module="instance/properties.py",
        right="        if first is None:\n",
        wrong="        if not first:\n",
        tests=INSTANCE,
    ),
    Bug(
        name="older-copy-left",
        breaks="Other programs read older properties, which a slower writer wrote.",
        module="instance/properties.py",
        right="                if newer == values:\n",
        wrong="                if newer:\n",
        tests=INSTANCE,
    ),
    Bug(
        name="change-of-others-lost",
        breaks="A change is applied to an older version, and takes back the changes since.",
        module="instance/properties.py",
        right="            after = _changed(before, texts)\n",
        wrong="            after = _changed(copied, texts)\n",
        tests=INSTANCE,
    ),
    Bug(
        name="backup-of-older-properties",
        breaks="A backup has the properties of an open handle, not those that were set since.",
        module="instance/backup.py",
        right="    newest = StoredProperties(context.objects, context.url).newest() or ",
        wrong="    newest = ",
        tests=("tests/stories/test_changed_instance.py", "-k", "backup"),
    ),
)

"""Bugs in instances in AWS, and in the removal of instances."""

from __future__ import annotations

from ..bug import Bug

_CONTRACTS = "tests/contracts/test_aws_instance.py"
_STORY = "tests/stories/test_an_instance_in_aws.py"
_REMOVAL = "tests/stories/test_removing_an_instance.py"
INDEX = (_CONTRACTS, "-k", "TestDynamoTableIndex")
LAST = (_CONTRACTS, "-k", "test_the_last_change_is_the_one_in_the_file")
ROUTES = (_CONTRACTS, "-k", "test_an_object_is_where_its_key_says")
AGAIN = (_REMOVAL, "-k", "test_what_failed_is_done_by_doing_it_again")
OTHER_FILES = (_REMOVAL, "-k", "test_other_files_stay")
OTHER_QUEUES = (_REMOVAL, "-k", "test_a_folder_of_a_bucket_goes_with_its_queues_and_tables")
OTHER_BUCKETS = (_STORY, "-k", "test_a_bucket_of_others_is_left_alone")
NONSENSE = (_STORY, "-k", "test_properties_edited_into_nonsense_are_told")
_INDEX = "storage/aws/deployment/table_index.py"
_ROUTES = "storage/objectstore/routed_objects.py"
_DESTROY = "instance/destroy.py"

BUGS = (
    Bug(
        name="table-index-forgets-an-older-name",
        breaks="A renamed table is found by its older name too.",
        module=_INDEX,
        right="            return [by_id, removed, self._put(BY_NAME, changed, _NAME_IS_FREE)]",
        wrong="            return [by_id, self._put(BY_NAME, changed, _NAME_IS_FREE)]",
        tests=INDEX,
    ),
    Bug(
        name="table-index-loses-a-change",
        breaks="Of two changes of a table at the same time one is lost.",
        module=_INDEX,
        right="            if item is None or _record_of(item) != before:",
        wrong="            if item is None:",
        tests=INDEX,
    ),
    Bug(
        name="older-properties-of-a-table-stay",
        breaks="The file of a table's properties has an older change than the index.",
        module=_INDEX,
        right="                if newest == record:",
        wrong="                if newest is not None:",
        tests=LAST,
    ),
    Bug(
        name="routed-object-listed-twice",
        breaks="An object is listed that is in a bucket to which its key does not lead.",
        module=_ROUTES,
        right=" if self._route(info.key) is None)",
        wrong=")",
        tests=ROUTES,
    ),
    Bug(
        name="listing-of-routes-begins-too-early",
        breaks="A listing after a key begins before it.",
        module=_ROUTES,
        right="            if key > after:",
        wrong="            if key != after:",
        tests=ROUTES,
    ),
    Bug(
        name="instance-gone-before-its-tables",
        breaks="A removal that was interrupted cannot be repeated.",
        module=_DESTROY,
        right="        belongings=(*tables, *_elsewhere(place, values, records, pause), *rest),",
        wrong="        belongings=(*rest, *tables, *_elsewhere(place, values, records, pause)),",
        tests=AGAIN,
    ),
    Bug(
        name="files-of-others-removed",
        breaks="A removal deletes files that are not Sleeper's.",
        module=_DESTROY,
        right=" and re.fullmatch(rest, key[len(start) :], re.DOTALL) is not None",
        wrong="",
        tests=OTHER_FILES,
    ),
    Bug(
        name="resources-of-others-removed",
        breaks="A removal deletes queues of an instance whose id begins alike.",
        module="storage/aws/deployment/belongings.py",
        right="        if tag == self._tag:\n            return True",
        wrong="        if tag is not None:\n            return True",
        tests=OTHER_QUEUES,
    ),
    Bug(
        name="bucket-of-others-taken",
        breaks="An instance is made in a bucket with objects of somebody else.",
        module="storage/aws/deployment/buckets.py",
        right='(owner == "" and self._is_empty(bucket))',
        wrong='(owner == "")',
        tests=OTHER_BUCKETS,
    ),
    Bug(
        name="half-an-instance-opens",
        breaks="An instance that names other buckets in its properties is opened.",
        module="storage/places.py",
        right="        self.deployment.check(values)",
        wrong="        pass",
        tests=NONSENSE,
    ),
)

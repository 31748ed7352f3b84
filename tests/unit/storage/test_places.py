"""What follows from the kind of an instance's place: one class for each kind of URL."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime

import pytest

from sleeper.errors import InstanceGone, PropertiesInvalid, UrlInvalid
from sleeper.model.object_stores import ObjectStoreSettings
from sleeper.storage.followed_log import NO_CHECKS, CommitChecks
from sleeper.storage.places import BucketPlace, FolderPlace, MemoryPlace, Place, place_of
from tests.unit.workers.clocks import clock_of

CLOCK = clock_of(lambda: 0.0)
SERVER = ObjectStoreSettings(endpoint="http://127.0.0.1:9", region="eu-west-1")


def noon() -> datetime:
    return datetime(2026, 5, 4, 12, tzinfo=UTC)


def place(url, stores=SERVER):
    return place_of(url, stores, noon)


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("{folder}", FolderPlace),
        ("file://{folder}", FolderPlace),
        ("memory://", MemoryPlace),
        ("s3://trades/2026", BucketPlace),
        ("s3a://trades/2026", BucketPlace),
        ("gs://trades/2026", BucketPlace),
    ],
)
def test_the_scheme_of_a_url_chooses_the_class(url, kind, tmp_path):
    """The schemes of all stores that obstore opens are one kind."""
    assert type(place(url.format(folder=tmp_path / "here"))) is kind


@pytest.mark.parametrize("url", ["{folder}/my shop", "s3://trades/2026/a", "gs://trades/b"])
def test_a_place_is_pickled_with_its_settings(url, tmp_path):
    """Another process reads and writes the same objects, by credentials of its own."""
    first = place(url.format(folder=tmp_path))

    second = pickle.loads(pickle.dumps(first))

    assert type(second) is type(first)
    assert (second.url, second.stores) == (first.url, first.stores)
    assert second.objects.url("a") == first.objects.url("a")


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("s3://trades/Shop 7/My Instance", "my-instance"),
        ("memory://", "memory"),
        ("s3://trades", "trades"),
        ("/data/a-name-that-is-longer-than-ids", "a-name-that-is-longe"),
    ],
)
def test_the_default_id_is_made_from_the_name_of_the_folder(url, wanted):
    """Twenty characters at most (rule INS-1)."""
    assert place(url).default_id == wanted


def test_a_folder_inside_an_instance_names_it(tmp_path):
    """At any depth; the folder of the instance itself is not inside."""
    (tmp_path / "instance.properties").write_text("sleeper.id=a\nsleeper.format.version=1")

    assert place(tmp_path / "b" / "c").enclosing_instance() == str(tmp_path)
    assert place(tmp_path).enclosing_instance() is None


def test_a_file_is_no_place_of_an_instance(tmp_path):
    """Given a path of a file, then it is refused as that, and not as an instance to be made."""
    (tmp_path / "rows.parquet").write_bytes(b"PAR1")

    with pytest.raises(UrlInvalid, match=r"rows\.parquet is a file, and an instance is a folder"):
        place(tmp_path / "rows.parquet")


@pytest.mark.parametrize("read_back", ["auto", "never", "always"])
@pytest.mark.parametrize("url", ["folder", "memory://"])
def test_a_folder_and_memory_are_trusted_unless_the_property_says_always(url, read_back):
    """Nothing is tried before an append."""
    checks = place(url).commit_checks(read_back, str, CLOCK)

    assert checks == CommitChecks(read_back=read_back == "always")


def test_amazon_is_trusted_and_another_server_is_not():
    """Another server's conditions are tried once, and entries are read back unless never."""
    amazon = place("s3://trades/a", ObjectStoreSettings())
    other = place("s3://trades/a")

    assert amazon.commit_checks("auto", str, CLOCK) == NO_CHECKS
    assert [
        other.commit_checks(each, str, CLOCK).read_back for each in ("auto", "always", "never")
    ] == [
        True,
        True,
        False,
    ]
    assert other.commit_checks("never", str, CLOCK) != NO_CHECKS


def test_only_memory_ends_with_the_process(tmp_path):
    """No place of these makes buckets or tables for an instance alone."""
    places = [place(tmp_path), place("s3://trades/a"), place("memory://")]

    assert [each.is_of_process for each in places] == [False, False, True]
    assert not any(each.has_resources for each in places)


def test_only_a_folder_with_an_instance_is_checked_while_that_is_open(tmp_path):
    """By the id of its folder; an adapter of a test, and a folder without properties, stay as they are."""
    here = place(tmp_path)
    others = [here, place("s3://trades/a"), place("memory://"), Place("memory://", here.objects)]
    assert all(each.as_opened("a") is each for each in others)
    (tmp_path / "instance.properties").write_text("sleeper.id=a\n")

    opened = here.as_opened("a")

    opened.check_opened()
    assert (opened.url, opened.stores) == (here.url, here.stores)
    (tmp_path / "instance.properties").unlink()
    here.check_opened()
    with pytest.raises(InstanceGone):
        opened.check_opened()


def test_a_folder_that_is_not_empty_stays(tmp_path):
    """An empty one is removed."""
    for name in ("empty", "used"):
        (tmp_path / name).mkdir()
    (tmp_path / "used" / "a.txt").write_text("mine")

    for name in ("empty", "used"):
        place(tmp_path / name).remove_if_empty()

    assert [each.name for each in tmp_path.iterdir()] == ["used"]


def test_the_bucket_of_properties_of_an_instance_in_aws_is_refused():
    """The message names the URL to open; properties of another bucket are of no concern."""
    values = {"sleeper.id": "shop", "sleeper.config.bucket": "sleeper-shop-config"}

    with pytest.raises(UrlInvalid, match="open aws://shop"):
        place("s3://sleeper-shop-config").check_properties(values)
    place("s3://sleeper-shop-data").check_properties(values)


def test_any_adapter_is_a_place_whose_jobs_are_in_memory(tmp_path):
    """So a simulation runs on objects of its own; a bucket refuses jobs without a place."""
    how = {"now": noon, "sleep": lambda s: None, "pause": lambda n: None, "new_id": str}
    simulated = Place("memory://", place(tmp_path).objects)

    assert simulated.jobs_url(None) is None
    simulated.job_stores("a", None, {}, **how).close()
    with pytest.raises(PropertiesInvalid, match="in a bucket"):
        place("s3://trades/a").job_stores("a", None, {}, **how)

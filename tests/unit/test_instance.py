"""Opening and making instances."""

from __future__ import annotations

import pytest

import sleeper
from sleeper.errors import (
    DataDamaged,
    FormatTooNew,
    InstanceAlreadyExists,
    InstanceNotFound,
    UrlInvalid,
)


class TestConnect:
    """From a URL to an instance."""

    def test_an_instance_is_made_once(self, tmp_path):
        """Making it again would not harm it, but somebody expected an empty one (rule INS-1)."""
        sleeper.create_instance(tmp_path / "i").create_table(
            "t", sleeper.Schema(row_keys=(sleeper.Field("k", sleeper.Primitive.LONG),))
        )

        with pytest.raises(InstanceAlreadyExists, match="already"):
            sleeper.create_instance(tmp_path / "i")

        assert [table.name for table in sleeper.connect(tmp_path / "i").tables()] == ["t"]

    def test_create_opens_what_is_there(self, tmp_path):
        """A script may say create=True every time it runs."""
        first = sleeper.connect(tmp_path / "i", create=True)
        second = sleeper.connect(tmp_path / "i", create=True)

        assert (first.url, first.instance_id) == (second.url, second.instance_id)

    def test_a_folder_without_an_instance_is_no_instance(self, tmp_path):
        """The message says how to make one."""
        with pytest.raises(InstanceNotFound, match="sleeper init"):
            sleeper.connect(tmp_path)

    @pytest.mark.parametrize("url", ["ftp://host/x", "s3:/bucket//x://y", "azure://id"])
    def test_an_unknown_scheme_is_refused(self, url):
        """Rather than taken for a folder of that name."""
        with pytest.raises(UrlInvalid):
            sleeper.connect(url)

    def test_a_newer_format_is_refused(self, tmp_path):
        """An older Sleeper must not guess at what a newer one wrote."""
        sleeper.create_instance(tmp_path / "i", {"sleeper.format.version": "999"})

        with pytest.raises(FormatTooNew, match="upgrade"):
            sleeper.connect(tmp_path / "i")

    @pytest.mark.parametrize(
        "text",
        [
            b"",
            b"sleeper.format.version=1",
            b"\xff\xfe",
            b"sleeper.id=x\nsleeper.format.version=\xc2\xb2",
            b"sleeper.id=x\nsleeper.format.version=-1",
        ],
    )
    def test_damaged_properties_are_told_as_that(self, tmp_path, text):
        """By the name of the file and of the instance, and not as a mistake of the caller."""
        sleeper.connect(tmp_path, create=True)
        (tmp_path / "instance.properties").write_bytes(text)

        with pytest.raises(DataDamaged, match=f"instance.properties .*{tmp_path.name}"):
            sleeper.connect(tmp_path)

    def test_an_instance_is_named_after_its_folder(self, tmp_path):
        """Cut to twenty characters and plain letters (rule INS-1)."""
        made = sleeper.connect(tmp_path / "My Instance, with a long name", create=True)

        assert made.instance_id == "my-instance-with-a-l"

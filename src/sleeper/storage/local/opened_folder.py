"""The folder of an instance that was opened: whether it is still there, before each write to it."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from sleeper.model import paths
from sleeper.model.formats.properties_file import check_instance_id
from sleeper.storage.local.failures import read_failure

_Signature = tuple[int, int, int, int]


@dataclass(slots=True)
class OpenedFolder:
    """Notices that the folder of an instance was moved, deleted or replaced.

    A `stat` of `instance.properties` is compared: it changes if the folder, a link to it or the
    mounted file system is another one, or if a property was set. Then the file is read, and its id
    decides. The folder itself would not do: one that is made anew often has the same inode.

    Attributes:
        root: The folder.
        instance_id: The `sleeper.id` of the instance.
    """

    root: Path
    instance_id: str
    _seen: _Signature | None = field(default=None, repr=False)

    def check(self) -> None:
        """Check that the instance is there.

        Raises:
            InstanceGone: it is not.
            InstanceReplaced: another one is there.
            StorageFailed: its properties cannot be read.
        """
        path = f"{self.root}/{paths.INSTANCE_PROPERTIES}"
        found = signature_of(path)
        if found is not None and found == self._seen:
            return
        check_instance_id(_read(path), str(self.root), self.instance_id)
        self._seen = found


def signature_of(path: str) -> _Signature | None:
    """Return what changes when another file has the name; None if that cannot be seen."""
    with suppress(OSError):
        found = os.stat(path)  # noqa: PTH116 - half the time of Path.stat
        return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
    return None


def _read(path: str) -> bytes | None:
    try:
        return Path(path).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise read_failure(error, path) from error

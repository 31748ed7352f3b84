"""Says whether the instance that was opened is still at its place.

An instance is known by its `sleeper.id`, and by what was read of its logs (`FollowedLog`): the
id is a name, which a restored backup or an instance that was made anew has as well. Inode numbers
decide nothing, because a network folder may have others after it was mounted again.
"""

from __future__ import annotations

from dataclasses import dataclass

from sleeper.errors import InstanceGone, InstanceLost, InstanceReplaced
from sleeper.model import paths
from sleeper.model.formats.properties_file import check_instance_id
from sleeper.ports.objects import Objects


@dataclass(frozen=True, slots=True)
class OpenedInstance:
    """An instance that was opened.

    Attributes:
        objects: Its objects.
        url: Its place.
        instance_id: Its `sleeper.id`.
    """

    objects: Objects
    url: str
    instance_id: str

    def check(self) -> None:
        """Read the properties at its place, and compare the id. This is one request.

        Raises:
            InstanceGone: there is no instance.
            InstanceReplaced: it has another id.
            StorageFailed: the storage cannot be read.
        """
        check_instance_id(self.objects.read(paths.INSTANCE_PROPERTIES), self.url, self.instance_id)

    def lost(self, what: str) -> InstanceLost:
        """Return the error for something that was read or written before, and is not there now.

        Args:
            what: What is not there, or is different.
        """
        try:
            self.check()
        except (InstanceGone, InstanceReplaced) as failure:
            return failure
        return InstanceReplaced(
            f"{what}. So {self.url} is not what this process opened, though it has the same id, "
            f"{self.instance_id!r}: an older copy was restored, or the instance was deleted and "
            "made again. Nothing was written. Open the instance again (restart the process), then "
            "run jobs that are missing again with the same job ids. If nobody replaced the "
            "instance, run `sleeper verify`."
        )

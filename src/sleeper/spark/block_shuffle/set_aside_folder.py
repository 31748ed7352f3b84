"""Rows with a null key, which the tasks of a bulk import put into files of one folder.

Spark may run a task twice, one after the other or at the same time, and a worker may be killed. So
each attempt writes files of its own, in a hidden folder. The driver learns from the reports of the
tasks which files count. Only those are moved, and the folder appears when the import has succeeded.

A report goes through Spark's shuffle. From version 4.1 on Spark compares what attempts of a task
send, and fails the job if they differ. So a complete file is named by its content: another attempt
that sets the same rows aside reports the same name.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sleeper.engine.writing.atomic_directory import atomic_directory
from sleeper.errors import StorageFailed
from sleeper.language.value_classes import dataclass
from sleeper.ports.ids import NewId


@dataclass(frozen=True, slots=True)
class SetAsideFolder:
    """The folder that the driver makes, and tasks write to.

    Attributes:
        tasks: Where attempts of tasks write; None where rows with a null key are refused.
    """

    tasks: Path | None = None

    def keep(self, names: Iterable[str]) -> None:
        """Keep the files of these names, and delete those of attempts that do not count.

        Raises:
            StorageFailed: a file is not there: workers may have disks of their own.
        """
        if self.tasks is None:
            return
        for number, name in enumerate(sorted(names)):
            try:
                (self.tasks / name).rename(self.tasks.with_name(f"part-{number:05}.parquet"))
            except OSError as error:
                raise StorageFailed(
                    f"Spark's workers set rows aside in {name}, which this process cannot move "
                    f"({error}). Name a folder that the driver and all workers reach"
                ) from error
        shutil.rmtree(self.tasks, ignore_errors=True)


def named_by_content(file: Path, task: int, source: int) -> str:
    """Rename a complete file of an attempt to a name that follows from its bytes; return the name.

    A file of this name, of an earlier attempt, has the same bytes and is replaced.

    Args:
        file: The file, in the folder of the tasks.
        task: The number of the task; each task has its own names.
        source: The number of the input within the task.

    Raises:
        StorageFailed: the file cannot be read or renamed.
    """
    try:
        with file.open("rb") as body:
            digest = hashlib.file_digest(body, "sha256").hexdigest()
        return file.replace(file.with_name(f"{task:05}-{source:03}-{digest}.parquet")).name
    except OSError as error:
        raise StorageFailed(f"cannot rename {file}: {error.strerror or error}") from error


@contextmanager
def set_aside_folder(folder: Path | None, new_id: NewId) -> Iterator[SetAsideFolder]:
    """Yield where tasks set rows aside; `folder` appears at the end of a block that succeeds.

    Args:
        folder: A folder that does not exist yet, or an empty one. The driver and all workers
            reach it. None refuses rows with a null key.
        new_id: Fresh random ids.

    Raises:
        AlreadyExists: there is something in the folder, such as the rows of another job.
        StorageFailed: the folder cannot be made.
    """
    if folder is None:
        yield SetAsideFolder()
        return
    with atomic_directory(folder, new_id()) as unfinished:
        tasks = unfinished / ".tasks"
        try:
            tasks.mkdir(parents=True)
        except OSError as error:
            raise StorageFailed(f"cannot write {folder}: {error.strerror or error}") from error
        yield SetAsideFolder(tasks)

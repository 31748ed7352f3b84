"""Bugs in storage: stores that cannot be trusted, and files that are not ours."""

from __future__ import annotations

from ..bug import Bug

BROKEN_STORES = ("tests/stories/test_broken_stores.py", "-k", "silence")
"""Threads commit to a server that begins to break put-if-absent."""
CHECKED_LOG = ("tests/unit/storage/test_checked_log.py",)
CONDITIONS = ("tests/contracts/test_conditions.py",)
UNFINISHED = ("tests/unit/storage/test_unfinished_files.py",)

BUGS = (
    Bug(
        name="link-to-nothing-is-an-entry",
        breaks="What is no file counts as another writer's entry, and commits fail for ever.",
        module="storage/local/folder.py",
        right="        if os.path.lexists(path) and not os.path.isfile(path):\n",
        wrong="        if os.path.isdir(path):\n",
        tests=("tests/contracts/test_folder_refusals.py",),
    ),
    Bug(
        name="entry-not-read-back",
        breaks="An entry that another writer replaces at once counts as committed.",
        module="storage/transaction_log.py",
        right="        self._compare(self._last)\n",
        wrong="",
        tests=CHECKED_LOG,
    ),
    Bug(
        name="last-entry-not-confirmed",
        breaks="An entry that another writer replaces a moment later is not noticed.",
        module="storage/transaction_log.py",
        right="        if last is not None and last.number == number and not last.confirmed:\n",
        wrong="        if last is not None and number < 0:\n",
        tests=CHECKED_LOG,
    ),
    Bug(
        name="races-not-looked-at",
        breaks="A server on which several writers win one race may hold an instance.",
        module="storage/objectstore/conditions.py",
        right="    if len(winners) > 1 or stored not in (winners or bodies):\n",
        wrong="    if stored not in (winners or bodies):\n",
        tests=CONDITIONS,
    ),
    Bug(
        name="commits-not-checked",
        breaks="A table's commits are not read back where a store is not trusted.",
        module="tables/state_stores.py",
        right="    log = open_log(place.files, checks=checks)\n",
        wrong="    log = open_log(place.files)\n",
        tests=BROKEN_STORES,
    ),
    Bug(
        name="overwritten-may-be-tried-again",
        breaks="Whoever had a commit overwritten is told that nobody knows, and to try again.",
        module="state/commit.py",
        right="        raise type(error)(",
        wrong="        raise CommitUnknown(",
        tests=("tests/unit/tables/test_ingest.py", "-k", "surely"),
    ),
    Bug(
        name="overload-not-waited-for",
        breaks="A store that is overloaded for longer than six seconds ends an ingest.",
        module="storage/objectstore/client.py",
        right="            if not is_overload(error):\n",
        wrong="            if is_overload is not None:\n",
        tests=("tests/contracts/test_overload.py", "-k", "every_request"),
    ),
    Bug(
        name="password-kept",
        breaks="A password in an endpoint's URL appears in messages and pickles.",
        module="model/object_stores.py",
        right='            object.__setattr__(self, "endpoint", shown)\n',
        wrong="",
        tests=("tests/contracts/test_objectstore_refusals.py", "-k", "password"),
    ),
    Bug(
        name="sketch-not-bounded",
        breaks="A few kilobytes of a sketch become gigabytes of memory.",
        module="engine/writing/stored_sketch.py",
        right="    body = inflater.decompress(deflated, _ITEMS_BYTES_MAX)\n",
        wrong="    body = inflater.decompress(deflated)\n",
        tests=("tests/unit/engine/writing/test_sketch.py", "-k", "memory"),
    ),
    Bug(
        name="sketch-offsets-unchecked",
        breaks="A sketch that was changed on purpose makes a split read beside its bytes.",
        module="engine/writing/stored_sketch.py",
        right="    if offsets[0] or (np.diff(offsets) < 0).any():\n",
        wrong="    if offsets[0]:\n",
        tests=("tests/unit/engine/writing/test_sketch.py", "-k", "on_purpose or overlap"),
    ),
    Bug(
        name="sketch-weights-repeated",
        breaks="The last row of a thinned sketch stands for the rows before it too.",
        module="engine/writing/stored_sketch.py",
        right="        np.minimum(until, sample.rows_seen - 1, out=until)  # the last is itself\n",
        wrong="",
        tests=("tests/unit/engine/writing/test_sketch.py", "-k", "stay_close"),
    ),
    Bug(
        name="sketch-items-unchecked",
        breaks="A sketch that was changed on purpose ends a split with an error of its library.",
        module="engine/writing/stored_sketch.py",
        right="        value_of(kind, value)  # raises for what is no value of the kind\n",
        wrong="        pass\n",
        tests=("tests/unit/engine/writing/test_sketch.py", "-k", "on_purpose"),
    ),
    Bug(
        name="any-name-deleted",
        breaks="Garbage collection deletes whatever a log entry names.",
        module="storage/deletion.py",
        right="        if not paths.is_data_file(name)\n",
        wrong="        if not name\n",
        tests=("tests/stories/test_hostile_names.py",),
    ),
    Bug(
        name="any-name-decoded",
        breaks="A log entry may name files outside its table.",
        module="state/value_json.py",
        right="    if not may_be_data_file(name):\n",
        wrong="    if not name:\n",
        tests=("tests/stories/test_hostile_names.py",),
    ),
    Bug(
        name="sweep-follows-links",
        breaks="Unfinished files are deleted through a symbolic link.",
        module="storage/local/unfinished.py",
        right="os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)\n",
        wrong="os.O_RDONLY | os.O_DIRECTORY)\n",
        tests=UNFINISHED,
    ),
    Bug(
        name="sweep-takes-any-name",
        breaks="Files of any name are deleted among unfinished ones.",
        module="storage/local/unfinished.py",
        right=" if _OUR_NAME.fullmatch(name)]\n",
        wrong="]\n",
        tests=UNFINISHED,
    ),
    Bug(
        name="umask-shuts-out",
        breaks="A writer's umask keeps others of a shared folder from reading the log.",
        module="storage/local/unfinished.py",
        right="            share_file(descriptor, root)\n",
        wrong="            pass\n",
        tests=UNFINISHED,
    ),
)

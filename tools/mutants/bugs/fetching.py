"""Bugs in how the bytes of remote files are asked for."""

from __future__ import annotations

from ..bug import Bug

FETCHING = ("tests/unit/lookup/test_fetching.py",)

CACHED = ("tests/requests/test_disk_cache.py",)

BUGS = (
    Bug(
        name="absent-before-its-filter-is-read",
        breaks="A file in a bucket is left out of a look-up though its filter was never read.",
        module="lookup/read_ahead.py",
        right="    if not all(index.has_filters(group, leaves) for group in groups):\n"
        "        return False\n",
        wrong="    if not all(index.has_filters(group, leaves) for group in groups):\n"
        "        return True\n",
        tests=FETCHING,
    ),
    Bug(
        name="bytes-held-of-another-place",
        breaks="What was read ahead is taken for bytes that begin before it.",
        module="lookup/read_ahead.py",
        right="            if at >= 0 and at + length <= len(data):\n",
        wrong="            if at + length <= len(data):\n",
        tests=FETCHING,
    ),
    Bug(
        name="scans-first",
        breaks="A scan of many files drops the indexes of look-ups from memory.",
        module="lookup/parquet_index.py",
        right="(self._of_scans or self._entries).popitem",
        wrong="(self._entries or self._of_scans).popitem",
        tests=FETCHING,
    ),
    Bug(
        name="interrupted-together",
        breaks="Ctrl-C in one thread interrupts all threads that read the same.",
        module="lookup/parquet_index.py",
        right="error if isinstance(error, Exception) else _InterruptedError()",
        wrong="error",
        tests=FETCHING,
    ),
    Bug(
        name="gaps-without-a-bound",
        breaks="Ranges share a request by a fixed distance, however small they are.",
        module="storage/objectstore/objects.py",
        right="max(near, min(before, size, FAR_BYTES))",
        wrong="max(near, FAR_BYTES)",
        tests=("tests/unit/storage/test_joined_ranges.py",),
    ),
    Bug(
        name="cut-from-the-run-before",
        breaks="A range is cut from the run before its own.",
        module="storage/objectstore/objects.py",
        right="bisect_right(starts, offset) - 1",
        wrong="max(0, bisect_right(starts, offset - 1) - 1)",
        tests=("tests/unit/storage/test_joined_ranges.py",),
    ),
    Bug(
        name="one-look-up-of-other-files",
        breaks="Keys of neighbouring leaves are looked up in the files of the first leaf.",
        module="state/plans/queries.py",
        right="first[0].filenames != second[0].filenames",
        wrong="False",
        tests=("tests/unit/state/plans/test_queries.py",),
    ),
    Bug(
        name="leaves-one-by-one",
        breaks="Keys in many leaves of a bucket are looked up leaf by leaf.",
        module="tables/read_rows.py",
        right="while len(waiting) > 1 and _is_enough(waiting):",
        wrong="while len(waiting) > 1:",
        tests=("tests/requests/test_requests.py",),
    ),
    Bug(
        name="block-unchecked",
        breaks="A damaged block of a disk cache is taken for what was read of the bucket.",
        module="storage/local/cache_room.py",
        right="(mark, length, checksum) == (_MARK, len(body), expected)",
        wrong="(mark, length, expected) == (_MARK, len(body), expected)",
        tests=("tests/unit/storage/local/test_disk_cache.py",),
    ),
    Bug(
        name="cache-without-bound",
        breaks="Processes that share a disk cache fill the disk.",
        module="storage/local/cache_room.py",
        right="before + added <= self._bytes_max\n",
        wrong="before + added <= 9 * self._bytes_max\n",
        tests=("tests/unit/storage/local/test_disk_cache.py",),
    ),
    Bug(
        name="kept-after-a-purge",
        breaks="A purge leaves rows of the table in the disk cache.",
        module="tables/purges/purge.py",
        right="        self._empty_cache(search)\n",
        wrong="",
        tests=CACHED,
    ),
    Bug(
        name="written-beside-a-purge",
        breaks="What was read of the bucket before a purge is kept after it.",
        module="storage/local/cache_room.py",
        right="            os.rename(unfinished, name, dst_dir_fd=opened)\n",
        wrong='            place = os.readlink(f"/proc/self/fd/{opened}").partition(" (")[0]\n'
        "            os.makedirs(place, exist_ok=True)\n"
        "            os.rename(unfinished, os.path.join(place, name))\n",
        tests=("tests/unit/storage/local/test_disk_cache.py",),
    ),
    Bug(
        name="blamed-for-a-block",
        breaks="A file in a bucket is called damaged for what the disk cache has of it.",
        module="lookup/reader.py",
        right="not again and self._kept.drop(filename)",
        wrong="again and self._kept.drop(filename)",
        tests=CACHED,
    ),
    Bug(
        name="scans-drive-out",
        breaks="A scan fills the disk cache, so that hot keys leave it.",
        module="lookup/reader.py",
        right="kept if keep else None",
        wrong="kept",
        tests=CACHED,
    ),
)

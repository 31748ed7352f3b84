"""Split-block Bloom filters: which values a column of a row group does not contain.

A filter is a list of blocks of 256 bits. A value has one block, and in it one bit in each of eight
words. If one of them is not set, the value was not written. If all are set, it probably was.

Source: parquet-format, BloomFilter.md and parquet.thrift (BloomFilterHeader).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from xxhash import xxh64_intdigest

from sleeper.lookup.parquet.compact_protocol import read_struct

Hashes = npt.NDArray[np.uint64]
"""XXH64 of values as Parquet encodes them, with seed 0."""

_BLOCK_BYTES = 32
_SALTS = (
    0x47B6137B,
    0x44974D91,
    0x8824AD5B,
    0xA2B7289D,
    0x705495C7,
    0x2DF1424B,
    0x9EFC4947,
    0x5C6BFB31,
)
_MANY_SALTS = np.array(_SALTS, np.uint32)
_HALF = np.uint64(32)


class FilterKey(NamedTuple):
    """A value in the form that filters look up.

    Attributes:
        high: The upper half of its hash, which chooses the block.
        bits: Its eight bits, as bits of a block that is read as one little-endian number.
    """

    high: int
    bits: int


def filter_key(value: int | bytes, width: int) -> FilterKey:
    """Return a value in the form that filters look up; integers have `width` bytes in a file."""
    if isinstance(value, int):
        value = value.to_bytes(width, "little", signed=True)
    found = xxh64_intdigest(value)
    low, bits, word = found & 0xFFFFFFFF, 0, 0
    for salt in _SALTS:
        bits |= 1 << ((low * salt & 0xFFFFFFFF) >> 27) + word
        word += 32
    return FilterKey(found >> 32, bits)


def hash_array(values: pa.Array) -> Hashes:
    """Return the hash of each of many values: integers of 32 or 64 bits, or byte arrays."""
    if pa.types.is_binary(values.type):
        encoded = values.to_pylist()
    else:
        numbers = values.to_numpy(zero_copy_only=False)
        encoded = numbers.view(f"V{numbers.itemsize}").tolist()
    return np.fromiter(map(xxh64_intdigest, encoded), np.uint64, len(values))


class BloomFilter:
    """The filter of one column in one row group."""

    __slots__ = ("_block_count", "_data", "_start")

    def __init__(self, data: bytes, start: int) -> None:
        self._data = data
        self._start = start
        self._block_count = (len(data) - start) // _BLOCK_BYTES

    @property
    def size_bytes(self) -> int:
        """Its size in memory."""
        return len(self._data) + 200

    def may_hold(self, key: FilterKey) -> bool:
        """Return whether a value may have been written; False is certain."""
        at = self._start + (key.high * self._block_count >> 32) * _BLOCK_BYTES
        block = int.from_bytes(self._data[at : at + _BLOCK_BYTES], "little")
        return block & key.bits == key.bits

    def may_hold_each(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Return for each of many values whether it may have been written."""
        blocks = np.frombuffer(self._data, "<u4", offset=self._start).reshape(-1, 8)
        chosen = blocks[((hashes >> _HALF) * np.uint64(self._block_count)) >> _HALF]
        shifts = (hashes.astype(np.uint32)[:, None] * _MANY_SALTS) >> np.uint32(27)
        missing = ~chosen & (np.uint32(1) << shifts)
        return np.asarray(~missing.any(axis=1))


def read_filter(data: bytes) -> BloomFilter | None:
    """Parse a filter with its header; None if this reader does not support its kind.

    Raises:
        ValueError: it is damaged.
    """
    header, start = read_struct(data)
    # Each is a union of one: split blocks, XXH64, not compressed.
    if any(not isinstance(header.get(n), dict) or 1 not in header[n] for n in (2, 3, 4)):
        return None
    size = header.get(1)
    if size != len(data) - start or size <= 0 or size % _BLOCK_BYTES:
        raise ValueError("a Bloom filter has another size than it says")
    return BloomFilter(data, start)

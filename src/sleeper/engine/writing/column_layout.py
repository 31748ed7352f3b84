"""Chooses codec and encoding of each column of a data file.

Every writer of data files asks here, so that files do not depend on who wrote them.

1. a column's candidates follow from its type and from the table's properties (`candidates`); the
   first is the quickest to look up
2. a file of few rows has the layout of each type (`layouts_by_type`)
3. otherwise some pages of the first rows are encoded in each way, by the encoder that writes the
   file, and the sizes decide (`layouts_by_sample`)

What is chosen depends on the rows alone, so two attempts of a job write the same bytes. Decision
0123 has the measurements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sleeper.columns.type_traits import KEY_LAYOUT, OTHER_LAYOUT, TRAITS_BY_ID, ColumnLayout
from sleeper.engine.arrow_schema import parquet_paths
from sleeper.engine.writing.write_settings import WriteSettings
from sleeper.model.schema import Schema

TOLERANCE = 1.01
"""A candidate may be larger than the smallest by so much, if it is quicker to look up."""

ZSTD_SHARE = 0.83
DELTA_SHARE = 0.7
"""Of numbers, zstd and differences are chosen only if they take at most this share of the others:
a look-up takes 17 and 20 us for such a page, and 3 for one of lz4."""

SAMPLE_PAGES = 2
SAMPLED_ROWS_MIN = 8_192
"""A file whose first row group has fewer rows has layouts by type: to encode a sample would take as
long as to write the file, and compactions write its rows anew."""

DICTIONARY_BYTES_MAX = 256 << 10
"""Bytes of a dictionary. A row group with more distinct values goes on without one. A look-up reads
and decodes it once."""

_SET_BYTES_MAX = 16 << 10
"""The same where a property asks for dictionaries: small files have them of distinct values too."""

DECIMAL_DIGITS_MAX = 18
"""Decimals of so many digits are stored as integers."""

ZSTD_LEVEL = 3
_DELTA = "DELTA_BINARY_PACKED"
_LENGTHS = "DELTA_LENGTH_BYTE_ARRAY"


def file_layouts(
    rows: pa.Table, schema: Schema, arrow_schema: pa.Schema, settings: WriteSettings
) -> dict[str, ColumnLayout]:
    """Return the layout of each column of a file, by the rows of its first row group.

    Args:
        rows: These rows; none if the file has none.
        schema: The table's schema.
        arrow_schema: The same as Arrow's, with the columns of the file.
        settings: What the table's properties say.

    Returns:
        The layouts, by the columns' paths in Parquet.
    """
    every = candidates(schema, arrow_schema, settings)
    if rows.num_rows < max(SAMPLED_ROWS_MIN, SAMPLE_PAGES * settings.page_rows):
        return layouts_by_type(every)
    return layouts_by_sample(rows, every, settings)


# ---------------------------------------------------------------- candidates


class Candidates(NamedTuple):
    """How a column may be written.

    Attributes:
        by_type: The layout for columns of its type, if nothing is known of the values.
        layouts: All layouts, that which is quickest to look up first.
        dictionary_wanted: Whether a property asks for a dictionary; the column has one if its
            values fit into it.
    """

    by_type: ColumnLayout
    layouts: tuple[ColumnLayout, ...]
    dictionary_wanted: bool = False


def candidates(
    schema: Schema, arrow_schema: pa.Schema, settings: WriteSettings
) -> dict[str, Candidates]:
    """Return how each column may be written, by its path in Parquet."""
    wanted: dict[str, bool | None] = {}
    wanted |= {field.name: settings.dictionary_row_keys for field in schema.row_keys}
    wanted |= {field.name: settings.dictionary_sort_keys for field in schema.sort_keys}
    wanted |= {field.name: settings.dictionary_values for field in schema.values}
    found = {}
    for field in arrow_schema:
        for path, kind in zip(parquet_paths(field), _leaf_types(field.type), strict=True):
            dictionary = wanted[field.name]
            if field.name in schema.row_key_names:
                found[path] = _of_key(settings, dictionary=bool(dictionary))
            else:
                alone = TRAITS_BY_ID.get(field.type.id)  # none of a list, a map or a struct
                by_type = OTHER_LAYOUT if alone is None else alone.layout
                found[path] = _of_value(kind, by_type, settings, dictionary=dictionary)
    return found


def _leaf_types(kind: pa.DataType) -> list[pa.DataType]:
    """Return the types of the columns of Parquet that a field becomes, in their order."""
    if pa.types.is_struct(kind):
        return [leaf for part in kind.fields for leaf in _leaf_types(part.type)]
    if pa.types.is_list(kind):
        return _leaf_types(kind.value_type)
    if pa.types.is_map(kind):
        return [*_leaf_types(kind.key_type), *_leaf_types(kind.item_type)]
    return [kind]


def _of_key(settings: WriteSettings, *, dictionary: bool) -> Candidates:
    plain = [KEY_LAYOUT, replace(KEY_LAYOUT, level=ZSTD_LEVEL)]
    if settings.codec is not None:
        plain = [replace(KEY_LAYOUT, codec=settings.codec, level=settings.level)]
    if not dictionary:
        return Candidates(plain[0], tuple(plain))
    with_dictionary = [replace(each, dictionary=True) for each in plain]
    return Candidates(with_dictionary[0], (*with_dictionary, *plain), dictionary_wanted=True)


def _of_value(
    kind: pa.DataType, by_type: ColumnLayout, settings: WriteSettings, *, dictionary: bool | None
) -> Candidates:
    encodings = _encodings(kind) if settings.page_version == "2.0" else (None,)
    codecs: tuple[tuple[str, int | None], ...] = (("lz4", None), ("zstd", ZSTD_LEVEL))
    if settings.codec is not None:
        codecs = ((settings.codec, settings.level),)
        by_type = replace(by_type, codec=settings.codec, level=settings.level)
    if settings.page_version != "2.0":
        by_type = replace(by_type, encoding=None)
    layouts = list[ColumnLayout]()
    if dictionary or (dictionary is None and not pa.types.is_boolean(kind)):
        layouts += [ColumnLayout(*codec, dictionary=True) for codec in codecs]
    layouts += [ColumnLayout(*codec, encoding) for encoding in encodings for codec in codecs]
    if dictionary:
        by_type = replace(by_type, encoding=None, dictionary=True)
    return Candidates(by_type, tuple(layouts), dictionary_wanted=bool(dictionary))


def _encodings(kind: pa.DataType) -> tuple[str | None, ...]:
    """Return the encodings of a type beside dictionaries, that which is quickest to look up first.

    Byte stream split is not among them: Spark's vectorised reader refuses it.
    """
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return (_LENGTHS,)
    short = pa.types.is_decimal(kind) and kind.precision <= DECIMAL_DIGITS_MAX
    if short or pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        return None, _DELTA
    return (None,)


def layouts_by_type(every: Mapping[str, Candidates]) -> dict[str, ColumnLayout]:
    """Return the layout of each column if nothing is known of its values."""
    return {path: each.by_type for path, each in every.items()}


# ---------------------------------------------------------------- sizes of a sample


def layouts_by_sample(
    rows: pa.Table, every: Mapping[str, Candidates], settings: WriteSettings
) -> dict[str, ColumnLayout]:
    """Choose layouts by what some pages of rows take in each.

    Dictionaries are measured on all rows, because they grow with them; but only those of columns
    whose values seem to recur. One that a property asks for is not compared with other layouts;
    but where it would exceed its limit, the column has the best layout without: the encoder would
    give it up, and go on with plain values.

    Args:
        rows: The first row group of a file.
        every: How each column may be written.
        settings: What the table's properties say.
    """
    rows = rows.combine_chunks()
    sample = _sample(rows, settings.page_rows)
    plain = {
        path: [each for each in found.layouts if not each.dictionary]
        for path, found in every.items()
    }
    sizes = _bytes_a_row(sample, plain, settings)
    with_dictionary = {
        path: [each for each in found.layouts if each.dictionary] for path, found in every.items()
    }
    limit = _dictionary_bytes_max(settings)
    recurring = {
        path: some
        for path, some in with_dictionary.items()
        if some
        and (
            every[path].dictionary_wanted
            or _may_recur(sample, path, sizes[path], rows.num_rows, limit)
        )
        and _fits(_leaf_values(rows, path), limit)
    }
    for path, more in _bytes_a_row(rows, recurring, settings).items():
        sizes[path] = more if every[path].dictionary_wanted else more | sizes[path]
    return {
        path: smallest(sizes[path], zstd_share=ZSTD_SHARE if found.by_type.codec == "lz4" else 1)
        for path, found in every.items()
    }


def smallest(sizes: Mapping[ColumnLayout, float], *, zstd_share: float = 1) -> ColumnLayout:
    """Return the first layout that is at most `TOLERANCE` times the smallest.

    Args:
        sizes: Bytes of a row in each layout, that which is quickest to look up first.
        zstd_share: What plain values in zstd count for is their size divided by this; differences
            count for theirs by `DELTA_SHARE`.

    >>> plain, packed = ColumnLayout("lz4"), ColumnLayout("zstd")
    >>> smallest({plain: 1.01, packed: 1.0}).codec, smallest({plain: 1.06, packed: 1.0}).codec
    ('lz4', 'zstd')
    """
    weighed = {}
    for layout, size in sizes.items():
        plain = layout.encoding is None and not layout.dictionary
        share = zstd_share if plain and layout.codec == "zstd" else 1
        weighed[layout] = size / (DELTA_SHARE if layout.encoding == _DELTA else share)
    least = min(weighed.values())
    return next(layout for layout, size in weighed.items() if size <= TOLERANCE * least)


def _sample(rows: pa.Table, page_rows: int) -> pa.Table:
    """Return whole pages of rows, evenly spaced, the first ones included."""
    step = rows.num_rows // SAMPLE_PAGES
    pages = [rows.slice(n * step, page_rows) for n in range(SAMPLE_PAGES)]
    return pa.concat_tables(pages).combine_chunks()


def _bytes_a_row(
    rows: pa.Table,
    choices: Mapping[str, Sequence[ColumnLayout]],
    settings: WriteSettings,
) -> dict[str, dict[ColumnLayout, float]]:
    """Encode columns in each of their layouts, and return what a row takes.

    Args:
        rows: The rows.
        choices: The layouts to try, by the column's path.
        settings: What the table's properties say.
    """
    found: dict[str, dict[ColumnLayout, float]] = {path: {} for path in choices}
    for turn in range(max(map(len, choices.values()), default=0)):
        layouts = {path: some[turn] for path, some in choices.items() if turn < len(some)}
        fields = [
            field for field in rows.schema if not layouts.keys().isdisjoint(parquet_paths(field))
        ]
        written: list[pq.FileMetaData] = []
        pq.write_table(
            rows.select([field.name for field in fields]),
            pa.BufferOutputStream(),
            row_group_size=rows.num_rows,
            write_statistics=False,
            store_schema=False,
            metadata_collector=written,
            **pyarrow_options(layouts, settings),
        )
        group = written[0].row_group(0)
        for number, path in enumerate(path for field in fields for path in parquet_paths(field)):
            if path in layouts:
                size = group.column(number).total_compressed_size
                found[path][layouts[path]] = size / rows.num_rows
    return found


def _may_recur(
    sample: pa.Table, path: str, sizes: Mapping[ColumnLayout, float], row_count: int, limit: int
) -> bool:
    """Return whether a dictionary of a column may be smaller than its values.

    Values are taken for drawn evenly from some number of different ones. If they are not, a row
    group has more of them: so this leaves out what cannot win, and does not choose.

    Args:
        sample: Some rows.
        path: The column's path in Parquet.
        sizes: Bytes of a row without a dictionary.
        row_count: Rows of the row group.
        limit: Bytes of a dictionary at most.
    """
    values = _leaf_values(sample, path)
    count, distinct = len(values) - values.null_count, pc.count_distinct(values).as_py()
    width = _entry_bytes(values)
    share = count / sample.num_rows
    expected = expected_distinct(count, distinct, share * row_count)
    if expected * width > limit:
        return False
    least = min(sizes.values())
    indexes = share * math.log2(max(expected, 1)) / 8
    entries = expected / row_count * min(width, least / max(share, 1e-9))
    return bool(indexes + entries < least)


def _fits(values: pa.Array, limit: int) -> bool:
    """Return whether a dictionary of values takes at most `limit` bytes."""
    return bool(pc.count_distinct(values).as_py() * _entry_bytes(values) <= limit)


def _dictionary_bytes_max(settings: WriteSettings) -> int:
    wanted = (
        settings.dictionary_row_keys,
        settings.dictionary_sort_keys,
        settings.dictionary_values,
    )
    return _SET_BYTES_MAX if any(wanted) else DICTIONARY_BYTES_MAX


def _entry_bytes(values: pa.Array) -> float:
    """Return the bytes that a value takes in a dictionary, on average."""
    count = len(values) - values.null_count
    return values.nbytes / count if count else 0.0


def expected_distinct(drawn: float, distinct: int, count: float) -> float:
    """Return how many different values `count` rows have, if `drawn` rows have `distinct`.

    Of n values that are drawn evenly, k rows have n * (1 - exp(-k / n)).

    >>> round(expected_distinct(2_000, 1_000, 30_000))
    1255
    >>> expected_distinct(2_000, 2_000, 30_000)
    30000
    """
    if distinct >= drawn:
        return count
    low, high = float(distinct), count * drawn
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if -middle * math.expm1(-drawn / middle) < distinct:
            low = middle
        else:
            high = middle
    return min(count, -high * math.expm1(-count / high))


_HALVINGS = 60


def _leaf_values(rows: pa.Table, path: str) -> pa.Array:
    """Return the values of one column of Parquet, of rows in one chunk."""
    for field in rows.schema:
        paths = parquet_paths(field)
        if path in paths:
            return _leaves(rows.column(field.name).chunk(0))[paths.index(path)]
    raise AssertionError(f"no column is at {path}")


def _leaves(values: pa.Array) -> list[pa.Array]:
    """Return the values inside structs, lists and maps, in the order of `_leaf_types`."""
    kind = values.type
    if pa.types.is_struct(kind):
        parts = values.flatten()
    elif pa.types.is_list(kind):
        parts = [values.flatten()]
    elif pa.types.is_map(kind):
        first, last = values.offsets[0].as_py(), values.offsets[-1].as_py()
        parts = [part.slice(first, last - first) for part in (values.keys, values.items)]
    else:
        return [values]
    return [leaf for part in parts for leaf in _leaves(part)]


def pyarrow_options(columns: Mapping[str, ColumnLayout], settings: WriteSettings) -> dict[str, Any]:
    """Return the options of pyarrow's writer for columns, by their paths, and pages of a file."""
    levels = {path: each.level for path, each in columns.items() if each.level is not None}
    encodings = {
        path: each.encoding
        for path, each in columns.items()
        if each.encoding is not None and not each.dictionary
    }
    return {
        "compression": {path: each.codec for path, each in columns.items()},
        "compression_level": levels or None,
        "column_encoding": encodings or None,
        "use_dictionary": [path for path, each in columns.items() if each.dictionary] or False,
        "dictionary_pagesize_limit": _dictionary_bytes_max(settings),
        "data_page_size": settings.page_bytes,
        "max_rows_per_page": settings.page_rows,
        "write_batch_size": min(1024, settings.page_rows),
        "data_page_version": settings.page_version,
        "store_decimal_as_integer": True,
        "write_page_checksum": True,
    }

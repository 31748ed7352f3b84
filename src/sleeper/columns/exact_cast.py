"""Casts between Arrow types that change no value, and raise an error if one would change."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.columns.type_traits import arrow_traits


def castable(given: pa.DataType, want: pa.DataType) -> bool:
    """Return whether some values of `given` can be represented exactly in `want`, same meaning."""
    have, is_ = plain_type(given), pa.types
    if have == want or is_.is_null(have):
        return True
    row = arrow_traits(want)
    if row is not None:
        return bool(row.takes(have))
    if is_.is_decimal(want):
        return bool(is_.is_decimal(have) or is_.is_integer(have))
    if is_.is_list(want):
        return is_list(have) and castable(have.value_type, want.value_type)
    if is_.is_map(want):
        pair = _pair_types(have)
        return pair is not None and (
            castable(pair[0], want.key_type) and castable(pair[1], want.item_type)
        )
    return False


def _pair_types(kind: pa.DataType) -> tuple[pa.DataType, pa.DataType] | None:
    """Return the types of key and value of a map, or of a list of pairs, polars' form of maps."""
    if pa.types.is_map(kind):
        return kind.key_type, kind.item_type
    if not is_list(kind) or not pa.types.is_struct(kind.value_type):
        return None
    pair = kind.value_type
    return (pair[0].type, pair[1].type) if pair.num_fields == 2 else None


def exact_cast(chunk: pa.Array, want: pa.DataType) -> pa.Array:
    """Return an array as exactly the wanted type, every value unchanged.

    Raises:
        pa.ArrowInvalid: a value would change, is not UTF-8, or no time of day; the message shows
            one.
    """
    cast = _cast(chunk, want)
    if _needs_validation(want):
        cast.validate(full=True)  # Arrow does not check what it is given, or reads from Parquet
    return cast


def _cast(chunk: pa.Array, want: pa.DataType) -> pa.Array:
    chunk = _decoded(chunk)
    have, is_ = chunk.type, pa.types
    if is_list(have) and (_is_list_view(have) or _hides_nulls(chunk)):
        chunk = _plain_lists(chunk)
        have = chunk.type
    if is_.is_map(want) and is_.is_map(have) and _hides_nulls(chunk):
        chunk = _as_map(_plain_lists(chunk.cast(pa.list_(_pair_type(have)))))
    if have == want:
        return chunk
    if is_.is_decimal(want) and is_.is_integer(have):
        # Arrow wants a precision for all integers of a type, also for those that are not there.
        chunk = chunk.cast(pa.decimal256(_INTEGER_DIGITS + want.scale, want.scale))
    if is_.is_map(want) and is_list(have):
        chunk = _as_map(chunk)
    if have == pa.float64() and want == pa.float32():
        return _shorter_floats(chunk)
    return chunk.cast(want)


_INTEGER_DIGITS = 20


def _hides_nulls(chunk: pa.Array) -> bool:
    """Return whether there may be null elements that no list has: those of a list that is null."""
    if not chunk.null_count:
        return False
    if pa.types.is_map(chunk.type):
        return bool(chunk.items.null_count)
    return bool(chunk.values.null_count)


def _is_list_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind))


def _pair_type(kind: pa.DataType) -> pa.DataType:
    return pa.struct([("key", kind.key_type), ("value", kind.item_type)])


def _plain_lists(chunk: pa.Array) -> pa.Array:
    """Return lists of any layout with their elements one after the other, and no others.

    Arrow's own cast reads memory that is not there, where a list view is large.
    """
    elements = chunk.flatten()
    lengths = pc.list_value_length(chunk).cast(pa.int32()).fill_null(0)
    ends = pc.cumulative_sum_checked(lengths).cast(pa.int32())
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    mask = chunk.is_null() if chunk.null_count else None
    return pa.ListArray.from_arrays(offsets, elements, mask=mask)


def _needs_validation(kind: pa.DataType) -> bool:
    """Return whether an array may have what is no value of its type, also in lists and maps."""
    if pa.types.is_list(kind):
        return _needs_validation(kind.value_type)
    if pa.types.is_map(kind):
        return _needs_validation(kind.key_type) or _needs_validation(kind.item_type)
    row = arrow_traits(kind)
    return row is not None and row.needs_validation


def _decoded(chunk: pa.Array) -> pa.Array:
    """Return the values themselves, without extension type, dictionary, run ends or views."""
    if isinstance(chunk.type, pa.BaseExtensionType):
        return _decoded(chunk.storage)
    if pa.types.is_run_end_encoded(chunk.type):
        return _decoded(pc.run_end_decode(chunk))
    if pa.types.is_dictionary(chunk.type):
        values = _decoded(chunk.dictionary)
        if values.type == pa.string_view():  # Arrow cannot take from it yet
            values = values.cast(pa.string())
        if values.type == pa.binary_view():
            values = values.cast(pa.binary())
        return values.take(chunk.indices)
    return chunk


def _as_map(chunk: pa.Array) -> pa.Array:
    """Return a list of pairs as a map, the first of each pair as its key."""
    pair = chunk.type.value_type
    listed = chunk.cast(pa.list_(pair))
    keys, values = (pc.struct_field(listed.values, [place]) for place in (0, 1))
    if keys.null_count:
        raise pa.ArrowInvalid("a key of a map is null")
    mask = listed.is_null() if listed.null_count else None
    offsets = listed.offsets
    return pa.MapArray.from_arrays(offsets, keys, values, mask=mask)


def _shorter_floats(chunk: pa.Array) -> pa.Array:
    short = chunk.cast(pa.float32())
    changed = pc.and_(pc.not_equal(short.cast(pa.float64()), chunk), pc.invert(pc.is_nan(chunk)))
    if pc.any(changed).as_py():
        example = chunk.filter(changed)[0]
        raise pa.ArrowInvalid(f"{example} has no exact float; declare DoubleType, or round it")
    return short


def is_list(kind: pa.DataType) -> bool:
    """True for lists of any layout; a map is not a list."""
    is_ = pa.types
    return bool(
        is_.is_list(kind)
        or is_.is_large_list(kind)
        or is_.is_fixed_size_list(kind)
        or is_.is_list_view(kind)
        or is_.is_large_list_view(kind)
    )


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values inside extension types, dictionaries and run ends."""
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    return kind

"""Casts between Arrow types that change no value, and raise an error if one would change."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.columns.type_traits import arrow_traits, is_text


def castable(given: pa.DataType, want: pa.DataType) -> bool:
    """Return whether some values of `given` can be represented exactly in `want`, same meaning."""
    have, is_ = plain_type(given), pa.types
    if have == want or is_.is_null(have):
        return True
    if isinstance(given, pa.UuidType) and is_text(want):
        return False  # Arrow has its 16 bytes, which are no text
    row = arrow_traits(want)
    if row is not None:
        return bool(row.takes(have))
    if is_.is_decimal(want):
        return bool(is_.is_decimal(have) or is_.is_integer(have))
    if is_.is_list(want):
        return is_list(have) and castable(have.value_type, want.value_type)
    if is_.is_struct(want):
        return is_.is_struct(have) and all(
            name in want.names
            and have.names.count(name) == 1
            and castable(part.type, want.field(name).type)
            for name, part in zip(have.names, have.fields, strict=True)
        )
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
    if have == want and not _hides_nulls(chunk):
        return chunk
    if is_.is_null(have):
        return pa.nulls(len(chunk), want)
    if is_.is_nested(want):
        return _nested(chunk, want)
    if is_.is_decimal(want) and is_.is_integer(have):
        # Arrow wants a precision for all integers of a type, also for those that are not there.
        chunk = chunk.cast(pa.decimal256(_INTEGER_DIGITS + want.scale, want.scale))
    if have == pa.float64() and want == pa.float32():
        return _shorter_floats(chunk)
    return chunk.cast(want)


_INTEGER_DIGITS = 20


def _hides_nulls(chunk: pa.Array) -> bool:
    """Return whether there may be nulls that no row has: those below a list that is null."""
    return any(
        (chunk.null_count and each.null_count) or _hides_nulls(each) for each in inner_arrays(chunk)
    )


def inner_arrays(chunk: pa.Array) -> list[pa.Array]:
    """Return what lists, maps or structs hold, whether a row has it or not; nothing of others."""
    kind = chunk.type
    if pa.types.is_struct(kind):
        return [chunk.field(at) for at in range(kind.num_fields)]
    if pa.types.is_map(kind):
        return [chunk.keys, chunk.items]
    return [chunk.values] if is_list(kind) else []


def _nested(chunk: pa.Array, want: pa.DataType) -> pa.Array:
    """Return lists, maps or structs as exactly the wanted type, level by level.

    What no row has is left out, such as elements below a list that is null, or outside of a slice.
    """
    mask = chunk.is_null() if chunk.null_count else None
    if pa.types.is_struct(want):
        missing = pa.nulls(len(chunk), pa.null())
        given = dict(zip(chunk.type.names, chunk.flatten(), strict=True))
        parts = [_cast(given.get(part.name, missing), part.type) for part in want.fields]
        return pa.StructArray.from_arrays(parts, fields=want.fields, mask=mask)
    if pa.types.is_map(chunk.type):
        chunk = _as_pairs(chunk)
    offsets, elements = _elements(chunk)
    if pa.types.is_list(want):
        values = _cast(elements, want.value_type)
        return pa.ListArray.from_arrays(offsets, values, type=want, mask=mask)
    keys, values = _decoded(elements).flatten()
    if keys.null_count:
        raise pa.ArrowInvalid("a key of a map is null")
    keys, values = _cast(keys, want.key_type), _cast(values, want.item_type)
    return pa.MapArray.from_arrays(offsets, keys, values, type=want, mask=mask)


def _as_pairs(chunk: pa.MapArray) -> pa.Array:
    """Return maps as lists of pairs, which share memory with them."""
    kind = pa.list_(pa.struct([chunk.type.key_field, chunk.type.item_field]))
    buffers, pairs = (
        chunk.buffers()[:2],
        pa.StructArray.from_arrays(
            [chunk.keys, chunk.items], fields=[chunk.type.key_field, chunk.type.item_field]
        ),
    )
    return pa.Array.from_buffers(kind, len(chunk), buffers, offset=chunk.offset, children=[pairs])


def _elements(chunk: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return where lists of any layout begin and end, and their elements, and no others.

    Arrow's own cast reads memory that is not there, where a list view is large.
    """
    lengths = pc.list_value_length(chunk).cast(pa.int32()).fill_null(0)
    ends = pc.cumulative_sum_checked(lengths).cast(pa.int32())
    return pa.concat_arrays([pa.array([0], pa.int32()), ends]), chunk.flatten()


def _needs_validation(kind: pa.DataType) -> bool:
    """Return whether an array may have what is no value of its type, also inside of others."""
    if pa.types.is_nested(kind):
        return any(_needs_validation(kind.field(at).type) for at in range(kind.num_fields))
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

"""Input from CSV files and files of JSON lines, as they are or compressed.

Both are read as a stream, in blocks. CSV has a header; a value that is empty and not in quotes is
null, `""` is the empty text. `CsvOptions` say where a file is written otherwise.
"""

from __future__ import annotations

import codecs
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv
from pyarrow import json as arrow_json

from sleeper.engine.arrow_schema import check_columns, similar_column
from sleeper.engine.inputs.input_files import is_remote, shown
from sleeper.engine.inputs.json_reasons import json_place, json_reason, unexpected_fields
from sleeper.engine.inputs.text_lines import (
    decimal_commas,
    leading_zeros,
    line_of_row,
    lost_digits,
    odd_texts,
    other_dates,
    separated_thousands,
)
from sleeper.engine.inputs.text_values import (
    THOUSANDS_ADVICE,
    DecodedFile,
    MapsAsLists,
    MisfitText,
    TextSource,
    csv_type,
    exact_values,
    has_point,
    json_type,
    maps_as_lists,
    number_advice,
    small_batches,
    with_points,
)
from sleeper.errors import InputNotFound, InputSchemaMismatch, InputUnreadable
from sleeper.model.csv_options import CsvOptions
from sleeper.model.input_names import (
    COMPRESSED_NAME,
    SEPARATORS,
    TextKind,
    other_kind,
    separator_of,
    text_kind,
)
from sleeper.ports.objects import InputStore

_log = logging.getLogger(__name__)

_CODECS: Final = {"gz": "gzip", "zst": "zstd", "bz2": "bz2", "lz4": "lz4"}
_BLOCK_BYTES: Final = 8 << 20
_FIRST_LINE_BYTES: Final = 1 << 16
_LONG_LINE: Final = "straddling"
"""What pyarrow says of a line that does not fit into a block."""
"""Bytes that are parsed at once. A row may not be longer."""
_CSV_ROW = re.compile(
    r"(?:In CSV column #(\d+): )?(?:CSV parse error: )?Row #(\d+): (.*)", re.DOTALL
)
_MISFIT = re.compile("unexpected field|changed from|Failed to convert|too big")
_NO_INTEGER = re.compile(r"to u?int\d+: invalid value '(.*)'", re.DOTALL)
_COLUMNS = re.compile(r"Expected (\d+) columns, got (\d+)")
_ONE_COLUMN = re.compile(r"^Expected 1 columns, got \d+")
_GIVE_ENCODING: Final = (
    "give its encoding, by csv=CsvOptions(encoding=...) or --encoding, such as cp1252 (Windows, "
    "Excel) or latin-1"
)
_BOOLEAN_ADVICE: Final = "write true or false, or 1 or 0"
_NO_HEADER: Final = (
    "If its first row has values and no names, give csv=CsvOptions(header=False), on the command "
    "line --no-header"
)
_NEWLINE: Final = b"\n"
_TIME: Final = pa.timestamp("s")
"""What pyarrow takes texts of JSON for that are dates or times, with a zone or without."""
_ZONE: Final = r"[T ]\d\d.*(Z|[-+]\d\d(:?\d\d)?)$"
_MOMENT: Final = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d"
_DATE_ALONE: Final = r"^\d{4}-\d\d-\d\d$"
_SHOWN_SEPARATORS: Final = {"\t": "\\t"}


class TextFiles:
    """The rows of CSV files or of files of JSON lines, file after file.

    Attributes:
        files: Their paths.
        name: Their name in messages.
        origin: The file that is being read.
        row_count: None: it is not known before they are read.
        schema: None: columns are found by name, and read as the table's types.

    Args:
        files: Their paths. One whose name does not say otherwise is CSV.
        arrow_schema: The table's schema.
        remote: Opens files by URL.
        csv: How files of CSV are written.
    """

    def __init__(
        self,
        files: tuple[str, ...],
        arrow_schema: pa.Schema,
        remote: InputStore | None = None,
        csv: CsvOptions | None = None,
    ) -> None:
        self.files = files
        self.name = shown(files[0]) if len(files) == 1 else f"{len(files)} files"
        self.origin = self.name
        self.row_count: int | None = None
        self.schema: pa.Schema | None = None
        self._arrow_schema = arrow_schema
        self._remote = remote
        self._ignores_extra: bool | None = None
        self._names: dict[str, list[str]] = {}
        self._csv = csv or CsvOptions()

    def check(self, *, ignore_extra_columns: bool) -> None:
        """Read the beginning of every file, and compare its columns with the table's."""
        for path in self.files:
            if _kind(path) == "json":
                _refuse_inner_maps(path, self._arrow_schema)
            names = self._names[path] = self._columns_of(path)
            if _kind(path) == "csv":
                refuse_other_separator(path, names, self._arrow_schema.names, self._csv)
            if not names and _kind(path) != "csv":
                continue
            try:
                check_columns(
                    _as_schema(names, self._arrow_schema),
                    self._arrow_schema,
                    ignore_extra_columns=ignore_extra_columns,
                    origin=shown(path),
                )
            except InputSchemaMismatch as error:
                is_csv = _kind(path) == "csv" and self._csv.header
                known = self._arrow_schema.names
                if is_csv and not any(similar_column(name, known) for name in names):
                    raise InputSchemaMismatch(f"{error}. {_NO_HEADER}") from None
                raise
        self._ignores_extra = ignore_extra_columns

    def batches(
        self, columns: Sequence[str] | None = None, rows_per_file_max: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows, with only the columns that the table has."""
        if self._ignores_extra is None:
            self.check(ignore_extra_columns=False)
        for path in self.files:
            self.origin = shown(path)
            left = rows_per_file_max
            for batch in self._rows_of(path, columns):
                yield from small_batches(batch if left is None else batch.slice(0, left))
                if left is not None:
                    left -= min(left, batch.num_rows)
                    if not left:
                        break

    def _rows_of(self, path: str, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        wanted = self._arrow_schema.names if columns is None else columns
        fields = [self._arrow_schema.field(name) for name in wanted]
        if _kind(path) == "csv":
            names = self._names[path]
            fields = [field for field in fields if field.name in names]
            yield from _csv_rows(path, self._remote, fields, names, self._csv)
        else:
            ignore = bool(self._ignores_extra) or columns is not None
            yield from _json_rows(path, self._remote, fields, ignores_extra=ignore)

    def _columns_of(self, path: str) -> list[str]:
        """Return the names of a file's columns; of JSON lines, those of the first rows."""
        if _kind(path) == "csv":
            return [*csv_schema(path, self._remote, self._csv).names]
        with _opened(path, self._remote, _maps(self._arrow_schema)) as file:
            try:
                return list(_open_json(file, None, "infer").schema.names)
            except pa.ArrowException:
                return []  # it has no rows, or reading them finds the line that is wrong


def refuse_other_separator(
    path: str, names: Sequence[str], known: Iterable[str], csv: CsvOptions
) -> None:
    """Refuse CSV whose header has known names, but not between the separators that are given.

    Args:
        path: The file.
        names: The columns that were found in it.
        known: The names of the table's fields, or of the keys of a new table.
        csv: How the file was read.

    Raises:
        InputSchemaMismatch: it has one column, whose name has a known name between separators.
    """
    wanted = set(known)
    if names and names[0].lower().startswith("sep=") and names[0] not in wanted:
        _refuse(
            path,
            "its first line, sep=, is how Excel keeps the separator: delete the line, and give the "
            "separator, by csv=CsvOptions(separator=...) or --separator",
            misfit=True,
        )
    if len(names) != 1 or names[0] in wanted:
        return
    for separator in SEPARATORS:
        if wanted & {name.strip('"') for name in names[0].split(separator)}:
            _refuse(path, _separated_by(separator, csv), misfit=True)


def _separated_by(separator: str, csv: CsvOptions) -> str:
    return (
        f"its columns are separated by {separator!r}, not by {csv.separator!r}: give "
        f"csv=CsvOptions(separator={separator!r}), on the command line --separator "
        f"{_SHOWN_SEPARATORS.get(separator, separator)!r}"
    )


def _refuse_first_line(path: str, remote: InputStore | None, csv: CsvOptions) -> None:
    """Refuse CSV with rows of other lengths than its first line, if that is the one to change."""
    with _opened(path, remote, csv=csv) as file:
        lines = file.read(_FIRST_LINE_BYTES).decode("utf-8-sig", "replace").splitlines()
    first = next(filter(None, lines), "")
    if first.startswith("#"):
        _refuse(path, "its first line begins with '#': delete the lines before the header")
    separator = separator_of(first)
    if csv.separator not in first and separator is not None:
        _refuse(path, _separated_by(separator, csv))


def csv_schema(path: str, remote: InputStore | None, csv: CsvOptions) -> pa.Schema:
    """Return the columns of a file of CSV, with the types that its first 8 MiB suggest.

    Raises:
        InputUnreadable: its beginning cannot be read.
    """
    with _opened(path, remote, csv=csv) as file:
        try:
            found = _open_csv(file, {}, csv).schema
        except pa.ArrowException as error:
            _refuse_other_kind(path, remote, csv)
            if "Expected" in str(error):
                _refuse_first_line(path, remote, csv)
            _refuse_csv(path, str(error), (), csv, lambda row: _at_line(path, remote, row, csv))
    try:
        names = found.names  # pyarrow decodes them only here
    except UnicodeDecodeError:
        _refuse_other_kind(path, remote, csv)
        _refuse(path, f"its header is no UTF-8: {_GIVE_ENCODING}")
    if not all(map(str.isprintable, names)):
        _refuse_other_kind(path, remote, csv)
    return found


def _refuse_other_kind(path: str, remote: InputStore | None, csv: CsvOptions | None = None) -> None:
    """Refuse a file that could not be read and begins as no text does, or as text in UTF-16."""
    with _opened(path, remote) as file:
        beginning = file.read(8)
    if (what := other_kind(beginning)) is not None:
        _refuse(path, what)
    is_utf16 = beginning[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    if csv is not None and is_utf16 and _is_utf8(csv.encoding):
        _refuse(
            path,
            "it begins as text in UTF-16 does: give csv=CsvOptions(encoding='utf-16'), on the "
            "command line --encoding utf-16",
        )


def refuse_other_encoding(path: str, found: pa.Schema) -> None:
    """Refuse CSV with columns that are bytes, because they are no UTF-8.

    Raises:
        InputUnreadable: there is such a column.
    """
    for field in found:
        if pa.types.is_binary(field.type):
            _refuse(path, f"column {field.name!r} has values that are no UTF-8: {_GIVE_ENCODING}")


def warn_of_types(path: str, remote: InputStore | None, csv: CsvOptions) -> None:
    """Log which columns of a file of CSV may have been meant to have another type, and why.

    A column of text would be numbers, dates or times if some values were null or were written
    otherwise; one of numbers would be text, for zeros that values begin with or digits that a float
    does not hold. Its first 8 MiB count.
    """
    rows = _first_rows(path, remote, csv, {})
    if rows is None:
        return
    _warn_of_digits(path, remote, csv, rows)
    for column in rows.schema.names:
        if column != column.strip():
            _log.warning(
                "the name of column %r of %s begins or ends with a space, which belongs to it: "
                "write the header without, or give other names (--column-names)",
                *(column, shown(path)),
            )
    for column, value in other_dates(rows).items():
        _log.warning(
            "column %r of %s is text, because dates such as %.50r are not written as 2025-12-31: "
            "if they are to be dates, write them so, or read the file with pandas or polars and "
            "give the frame",
            *(column, shown(path), value),
        )
    commas = decimal_commas(rows) if csv.decimal_point == "." else {}
    thousands = separated_thousands(rows, csv.decimal_point)
    for column, value in thousands.items():
        _log.warning(
            "column %r of %s is text, because of numbers with a sign between thousands, such as "
            "%.50r: %s%s",
            *(column, shown(path), value, THOUSANDS_ADVICE),
            ". If it is a decimal comma, give decimal_point=',' of csv (--decimal-point ,)"
            * (column in commas),
        )
    for column, value in commas.items():
        if column in thousands:
            continue
        _log.warning(
            "column %r of %s is text, because its values have commas, such as %.50r. If they are "
            "numbers with a decimal comma, give decimal_point=',' of csv (--decimal-point ,)",
            *(column, shown(path), value),
        )
    for odd in odd_texts(rows):
        if odd.column in thousands:
            continue
        row = odd.place + 1 + csv.header
        _log.warning(
            "column %r of %s is text, because of %d of its first %d values, which are no %s: the "
            "first is %.50r, %srow %d. If they stand for null, give them as null_texts of csv "
            "(--null-text)",
            *(odd.column, shown(path), odd.count, odd.total, odd.kind, odd.value),
            *(_at_line(path, remote, row, csv), row),
        )


def _warn_of_digits(
    path: str, remote: InputStore | None, csv: CsvOptions, rows: pa.RecordBatch
) -> None:
    numbers = [
        field.name
        for field in rows.schema
        if pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
    ]
    if not numbers:
        return
    texts = _first_rows(path, remote, csv, dict.fromkeys(numbers, pa.string()))
    if texts is None:
        return
    for column, (value, count) in leading_zeros(texts).items():
        _log.warning(
            "column %r of %s is of numbers, so %d of its first %d values lose the zeros that they "
            "begin with, such as %.50r: if they are codes, give the column the type StringType, in "
            "a schema of your own (--schema, in Python pa.schema)",
            *(column, shown(path), count, texts.num_rows, value),
        )
    floats = {field.name for field in rows.schema if pa.types.is_floating(field.type)}
    for column, (value, count) in lost_digits(texts).items():
        if column not in floats:
            continue
        _log.warning(
            "column %r of %s is of floats of 64 bits, so %d of its first %d values lose digits, "
            "such as %.50r: if they count, give the column the type StringType or DecimalType, in "
            "a schema of your own (--schema, in Python pa.schema)",
            *(column, shown(path), count, texts.num_rows, value),
        )


def _first_rows(
    path: str, remote: InputStore | None, csv: CsvOptions, types: dict[str, pa.DataType]
) -> pa.RecordBatch | None:
    """Return the first 8 MiB of a file of CSV; None if they cannot be read."""
    with _opened(path, remote, csv=csv) as file:
        try:
            return _open_csv(file, types, csv).read_next_batch()
        except (pa.ArrowException, StopIteration):
            return None


def json_schema(path: str, remote: InputStore | None) -> pa.Schema:
    """Return the fields of a file of JSON lines, with the types that its first 8 MiB suggest.

    Raises:
        InputUnreadable: its beginning cannot be read.
    """
    with _opened(path, remote) as file:
        try:
            found = _open_json(file, None, "infer").schema
        except pa.ArrowException as error:
            _refuse_other_kind(path, remote)
            _refuse(path, json_place(str(error)) + json_reason(str(error), ()))
    texts = pa.schema([(each.name, _times_as_text(each.type)) for each in found])
    with _opened(path, remote) as file:
        rows = _open_json(file, texts, "infer").read_next_batch()
    return pa.schema(
        [each.with_type(_times_as_written(each.type, rows.column(each.name))) for each in found]
    )


def _times_as_text(kind: pa.DataType) -> pa.DataType:
    """Return a type with text for its timestamps, of which pyarrow does not say the zone."""
    if pa.types.is_list(kind):
        return pa.list_(_times_as_text(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(part.name, _times_as_text(part.type)) for part in kind.fields])
    return pa.string() if kind == _TIME else kind


def _are_moments(texts: pa.Array) -> bool:
    """Return whether all texts are timestamps; pyarrow takes those with fractions for text."""
    given = texts.drop_null()
    if not len(given) or pc.match_substring_regex(given, _MOMENT).false_count:
        return False
    zone = "UTC" if pc.match_substring_regex(given, _ZONE).true_count else None
    try:
        exact_values(given, pa.timestamp("us", zone))
    except MisfitText:  # no such day, more digits than microseconds, or zones beside none
        return False
    return True


def _times_as_written(kind: pa.DataType, values: pa.Array) -> pa.DataType:
    """Return a type with dates, timestamps, or timestamps with a zone, where all texts are such.

    Where some have a zone and some have none they are text: they are not moments of one kind.
    """
    if pa.types.is_list(kind):
        return pa.list_(_times_as_written(kind.value_type, values.flatten()))
    if pa.types.is_struct(kind):
        parts = zip(kind.fields, values.flatten(), strict=True)
        return pa.struct([(part.name, _times_as_written(part.type, each)) for part, each in parts])
    if kind not in (_TIME, pa.string()) or (kind != _TIME and not _are_moments(values)):
        return kind
    if pc.match_substring_regex(values.drop_null(), _DATE_ALONE).false_count == 0:
        return pa.date32()
    zoned = pc.match_substring_regex(values.drop_null(), _ZONE)
    if not zoned.true_count:
        return _TIME
    return pa.string() if zoned.false_count else pa.timestamp("us", "UTC")


def _kind(path: str) -> TextKind:
    return text_kind(path) or "csv"


def _refuse_inner_maps(path: str, fields: Iterable[pa.Field]) -> None:
    """Refuse JSON lines for fields with maps inside of other values, whose objects are not found.

    Raises:
        InputSchemaMismatch: there is such a field.
    """
    for field in fields:
        if any(_has_map(field.type.field(at).type) for at in range(field.type.num_fields)):
            _refuse(
                path,
                f"field {field.name!r} has maps inside of {field.type}, which are read from Arrow, "
                "Parquet, DataFrames and dicts alone",
                misfit=True,
            )


def _has_map(kind: pa.DataType) -> bool:
    parts = (kind.field(at).type for at in range(kind.num_fields))
    return bool(pa.types.is_map(kind)) or any(map(_has_map, parts))


def _maps(fields: Iterable[pa.Field]) -> list[str]:
    """Return the names of the fields that are maps."""
    return [field.name for field in fields if pa.types.is_map(field.type)]


def _csv_rows(
    path: str,
    remote: InputStore | None,
    fields: Sequence[pa.Field],
    names: Sequence[str],
    csv: CsvOptions,
) -> Iterator[pa.RecordBatch]:
    types = {field.name: csv_type(field.type) for field in fields}
    rows = 0

    def at_line(row: int) -> str:
        return _at_line(path, remote, row, csv)

    with _opened(path, remote, csv=csv) as file:
        try:
            for batch in _open_csv(file, types, csv):
                first = rows + 1 + csv.header
                yield _typed(batch, fields, path, first, at_line, csv.decimal_point)
                rows += batch.num_rows
        except pa.ArrowException as error:
            _refuse_other_kind(path, remote, csv)
            _refuse_csv(path, str(error), names, csv, at_line)
        if file.quotes % 2:
            _refuse(
                path,
                f"it has an odd number of quotes ({csv.quote}): a quoted value does not end, or "
                "the file was cut off. A quote inside a value is doubled, and the value quoted",
            )


def _at_line(path: str, remote: InputStore | None, row: int, csv: CsvOptions) -> str:
    """Return `line N, ` for a row of CSV; nothing where its line is not certain."""
    with _opened(path, remote, csv=csv) as file:
        line = line_of_row(file, row, csv)
    return "" if line is None else f"line {line:,}, "


def _open_csv(file: TextSource, types: dict[str, pa.DataType], csv: CsvOptions) -> Any:
    """Open CSV for columns of some types; without types to learn its columns."""
    return arrow_csv.open_csv(
        file.lend(),
        # One thread: then errors say which row it is.
        read_options=arrow_csv.ReadOptions(
            block_size=_BLOCK_BYTES,
            use_threads=False,
            column_names=None if csv.column_names is None else [*csv.column_names],
            skip_rows_after_names=int(csv.header and csv.column_names is not None),
            autogenerate_column_names=not csv.header and csv.column_names is None,
        ),
        parse_options=arrow_csv.ParseOptions(
            newlines_in_values=True,
            delimiter=csv.separator,
            quote_char=csv.quote or False,
            double_quote=csv.quote is not None,
        ),
        convert_options=arrow_csv.ConvertOptions(
            column_types=types,
            include_columns=[*types] or None,
            null_values=[*csv.null_texts],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            decimal_point=csv.decimal_point,
        ),
    )


def _json_rows(
    path: str, remote: InputStore | None, fields: Sequence[pa.Field], *, ignores_extra: bool
) -> Iterator[pa.RecordBatch]:
    maps = _maps(fields)
    schema = pa.schema([pa.field(field.name, json_type(field.type)) for field in fields])
    unexpected = "ignore" if ignores_extra else "error"
    rows, reason = 0, ""
    with _opened(path, remote, maps) as file:
        try:
            for batch in _open_json(file, schema, unexpected):
                yield _typed(batch, fields, path, rows + 1, lambda _: "")
                rows += batch.num_rows
        except pa.ArrowException as error:
            reason = str(error)
    if not reason or "Empty JSON" in reason:
        return
    _refuse_other_kind(path, remote)
    line, found = _first_bad_line(path, remote, schema, unexpected, maps) or (None, reason)
    where = "" if line is None else f"line {line:,}: "
    _refuse(path, where + json_reason(found, maps), misfit=_MISFIT.search(found) is not None)


def _open_json(
    file: TextSource | pa.BufferReader, schema: pa.Schema | None, unexpected: str
) -> Any:
    return arrow_json.open_json(
        file.lend() if isinstance(file, TextSource) else file,
        read_options=arrow_json.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False),
        parse_options=arrow_json.ParseOptions(
            explicit_schema=schema, newlines_in_values=False, unexpected_field_behavior=unexpected
        ),
    )


def _first_bad_line(
    path: str,
    remote: InputStore | None,
    schema: pa.Schema,
    unexpected: str,
    maps: Sequence[str],
) -> tuple[int, str] | None:
    """Return the number of the first line that cannot be read, and why. Reads the file again."""
    begun, waiting = 0, b""
    with _opened(path, remote) as file:
        while body := file.read(_BLOCK_BYTES):
            body = waiting + body
            whole, _, waiting = body.rpartition(_NEWLINE)
            lines = whole.split(_NEWLINE)
            if (bad := _bad_among(lines, schema, unexpected, maps)) is not None:
                return begun + bad[0] + 1, bad[1]
            begun += len(lines) if whole else 0
            if len(waiting) > _BLOCK_BYTES:  # to read it whole might take all memory
                return begun + 1, _LONG_LINE
    bad = _bad_among([waiting], schema, unexpected, maps)
    return None if bad is None else (begun + 1, bad[1])


def _bad_among(
    lines: Sequence[bytes], schema: pa.Schema, unexpected: str, maps: Sequence[str]
) -> tuple[int, str] | None:
    """Return the place of the first of some lines that cannot be read, and why, by halving."""

    def failure(low: int, high: int) -> str | None:
        body = _NEWLINE.join(lines[low:high])
        if not body.strip():
            return None
        body = maps_as_lists(body, maps) if maps else body
        try:
            _open_json(pa.BufferReader(body), schema, unexpected).read_all()
        except pa.ArrowException as error:
            return str(error)
        return None

    low, high = 0, len(lines)
    reason = failure(low, high)
    if reason is None:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        earlier = failure(low, middle)
        low, high = (low, middle) if earlier else (middle, high)
        reason = earlier or failure(low, high) or reason
    if "unexpected field" in reason:
        reason = f"{reason} {unexpected_fields(lines[low], schema)}"
    return low, reason


def _typed(
    batch: pa.RecordBatch,
    fields: Sequence[pa.Field],
    path: str,
    first_row: int,
    at_line: Callable[[int], str],
    decimal_point: str = ".",
) -> pa.RecordBatch:
    """Return rows that were read as text as the table's types.

    `at_line` says the line of a row, for messages.
    """
    arrays = []
    for field in fields:
        column = written = batch.column(field.name)
        if decimal_point != "." and has_point(field.type):
            column = with_points(column, decimal_point)
        try:
            arrays.append(exact_values(column, field.type, written))
        except MisfitText as misfit:
            row = first_row + misfit.place
            raise InputSchemaMismatch(
                f"{shown(path)}, {at_line(row)}row {row:,}, column {field.name!r}: "
                f"{misfit.reason}. Nothing was ingested."
            ) from None
    return pa.RecordBatch.from_arrays(arrays, names=[field.name for field in fields])


def _as_schema(names: Sequence[str], arrow_schema: pa.Schema) -> pa.Schema:
    """Return columns of a file with the table's types; the types of others do not matter."""
    known = set(arrow_schema.names)
    return pa.schema(
        [(name, arrow_schema.field(name).type if name in known else pa.string()) for name in names]
    )


@contextmanager
def _opened(
    path: str,
    remote: InputStore | None,
    maps: Sequence[str] = (),
    csv: CsvOptions | None = None,
) -> Iterator[TextSource]:
    """Open a file for reading, decompressed by the end of its name; maps of JSON as lists."""
    found = COMPRESSED_NAME.search(path)
    ending = found[1] if found else None
    with ExitStack() as opened:
        try:
            file = opened.enter_context(_raw(path, remote))
            if ending is not None:
                plain = pa.PythonFile(file, mode="r")
                file = opened.enter_context(
                    pa.CompressedInputStream(plain, _CODECS[ending.lower()])
                )
            if csv is not None and not _is_utf8(csv.encoding):
                file = DecodedFile(file, csv.encoding)
            source = TextSource(
                MapsAsLists(file, maps) if maps else file, '"' if csv is None else csv.quote
            )
            opened.callback(source.wait_for_readers)
            yield source
        except UnicodeError as error:
            _refuse_encoding(path, error, getattr(file, "bytes_read", 0))
        except FileNotFoundError:
            raise InputNotFound(f"file {shown(path)} no longer exists") from None
        except OSError as error:
            _refuse(path, str(error).splitlines()[0] if str(error) else type(error).__name__)


def _raw(path: str, remote: InputStore | None) -> AbstractContextManager[Any]:
    if is_remote(path):
        if remote is None:
            raise InputNotFound(f"{shown(path)} is not on this machine, and no store was given")
        return remote.open(path)
    return Path(path).open("rb")


def _is_utf8(encoding: str) -> bool:
    return codecs.lookup(encoding).name == "utf-8"


def _refuse_encoding(path: str, error: UnicodeError, bytes_read: int) -> NoReturn:
    if isinstance(error, UnicodeDecodeError):
        found = f"byte {bytes_read + error.start:,} is no text in the encoding {error.encoding!r} "
        found += f"({error.reason})"
    else:  # what some encodings say, or half of a surrogate pair
        found = f"what it has up to byte {bytes_read:,} is no text ({error})"
    advice = "give the right encoding, by csv=CsvOptions(encoding=...) or --encoding"
    _refuse(path, f"{found}: {advice}")


def _refuse_csv(
    path: str,
    reason: str,
    names: Sequence[str],
    csv: CsvOptions,
    at_line: Callable[[int], str] = lambda _: "",
) -> NoReturn:
    """Raise the error for CSV that pyarrow refused, with line, row and the name of the column."""
    if "invalid UTF8" in reason:
        reason += f": {_GIVE_ENCODING}"
    found = _CSV_ROW.fullmatch(reason)
    if found is None:
        _refuse(path, reason)
    column, row, why = found.groups()
    why = why.removeprefix("CSV conversion error ")
    header = " (the header is row 1)" if csv.header else ""
    if column is None:
        hint = (
            f" (if its columns are not separated by {csv.separator!r}, say by what: "
            "csv=CsvOptions(separator=...) or --separator)"
        )
        why = _ONE_COLUMN.sub(lambda found: found[0] + hint, why)
        counts = _COLUMNS.match(why)
        if csv.quote is not None and counts and 1 < int(counts[1]) < int(counts[2]):
            hint = f" (a value with {csv.separator!r} in it must be in quotes)"
            why = f"{counts[0]}{hint}{why[counts.end() :]}"
        _refuse(path, f"{at_line(int(row))}row {int(row):,}{header}: {why}")
    value = _NO_INTEGER.fullmatch(why)
    advice = number_advice(value[1]) if value else _BOOLEAN_ADVICE if "to bool:" in why else None
    raise InputSchemaMismatch(
        f"{shown(path)}, {at_line(int(row))}row {int(row):,}{header}, column "
        f"{names[int(column)]!r}: {why}{(advice and f': {advice}') or ''}. Nothing was ingested."
    )


def _refuse(path: str, reason: str, *, misfit: bool = False) -> NoReturn:
    kind = "CSV" if _kind(path) == "csv" else "JSON lines"
    first = reason.splitlines()[0] if reason else "no reason is known"
    if _LONG_LINE in first:
        first = f"a row is longer than {_BLOCK_BYTES >> 20} MiB"
    text = f"{shown(path)} cannot be read as {kind}: {first}. Nothing was ingested."
    raise InputSchemaMismatch(text) if misfit else InputUnreadable(text)

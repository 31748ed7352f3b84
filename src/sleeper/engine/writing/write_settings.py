"""What a table's properties say about the layout of its data files."""

from __future__ import annotations

from dataclasses import dataclass

from sleeper.model.known_properties.table import ParquetProperties


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSettings:
    """The layout of data files.

    Attributes:
        codec: Compression of the pages of all columns, by pyarrow's name, "none" for none; None for
            a codec by column.
        level: Level of that codec; None is the codec's default.
        page_rows: Maximum number of rows of a page, which affects look-ups most.
        page_bytes: Approximate bytes of a page, before compression.
        row_group_rows: Maximum number of rows of a row group.
        row_group_bytes: Approximate bytes of a row group in memory.
        dictionary_row_keys: Whether row key columns get dictionaries; None for no.
        dictionary_sort_keys: Whether sort key columns do; None for those that are smaller with one.
        dictionary_values: Whether value columns do; None for those that are smaller with one.
        page_version: "1.0" or "2.0", the version of data pages.
        bloom_filter: Whether row key columns get Bloom filters. They need 1.2 to 2.4 bytes a row
            and column, and are in memory until the file is closed.
    """

    codec: str | None = None
    level: int | None = None
    page_rows: int = 1_000
    page_bytes: int = 128 << 10
    row_group_rows: int = 32_768
    row_group_bytes: int = 8 << 20
    dictionary_row_keys: bool | None = None
    dictionary_sort_keys: bool | None = None
    dictionary_values: bool | None = None
    page_version: str = "2.0"
    bloom_filter: bool = True


def write_settings(properties: ParquetProperties) -> WriteSettings:
    """Return the layout from a table's properties."""
    return WriteSettings(
        codec="none" if properties.compression == "uncompressed" else properties.compression,
        level=3 if properties.compression == "zstd" else None,
        page_rows=properties.page_rows,
        page_bytes=properties.page_bytes,
        row_group_rows=properties.row_group_rows,
        row_group_bytes=properties.row_group_bytes,
        dictionary_row_keys=properties.dictionary_row_keys,
        dictionary_sort_keys=properties.dictionary_sort_keys,
        dictionary_values=properties.dictionary_values,
        page_version="1.0" if properties.writer_version == "v1" else "2.0",
        bloom_filter=properties.bloom_filter,
    )

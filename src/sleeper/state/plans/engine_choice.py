"""Chooses whether one machine or Spark does a bulk import."""

from __future__ import annotations

from typing import Literal, get_args

from sleeper.errors import BadRequest
from sleeper.language.value_classes import dataclass

Engine = Literal["local", "spark"]
EngineAsked = Literal["auto", "local", "spark"]
InputKind = Literal["files", "frame", "memory"]

LOCAL_BYTES_MAX = 64 << 30
"""Bytes of input, before compression, that one machine imports in about half an hour."""

_SPILLED = 1.2  # local disk that sorting needs, as a multiple of the input


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The chosen engine, and the reason as one line of output."""

    engine: Engine
    reason: str


def choose_engine(
    asked: EngineAsked,
    kind: InputKind,
    *,
    input_bytes: int,
    free_bytes: int,
    spark_given: bool,
    spark_installed: bool,
) -> EngineChoice:
    """Choose the requested engine, or with `auto` the cheaper one that can do the import.

    Args:
        asked: The requested engine, or `auto`.
        kind: Parquet files; a Spark DataFrame; rows in this process, or a stream into it.
        input_bytes: Size of the input before compression, of files.
        free_bytes: Free space of the folder that sorting spills to.
        spark_given: Whether the caller named a session or a master.
        spark_installed: Whether Spark can be used at all.

    Raises:
        BadRequest: the requested engine is unknown, or cannot read this input.
    """
    _check_asked(asked)
    if kind == "frame":
        if asked == "local":
            raise BadRequest(
                "a Spark DataFrame is imported by Spark: leave engine='local' out, or write the "
                "rows to Parquet first"
            )
        return EngineChoice("spark", "the rows are a Spark DataFrame")
    if kind == "memory":
        if asked == "spark":
            raise BadRequest(
                "rows in this process are imported by the local engine: leave engine='spark' "
                "out, or give files or a Spark DataFrame"
            )
        return EngineChoice("local", "the rows are in this process")
    if asked != "auto":
        return EngineChoice(asked, "as asked")
    if spark_given:
        return EngineChoice("spark", "a Spark session was given")
    size = f"{input_bytes / 1e9:,.1f} GB of input"
    if input_bytes <= LOCAL_BYTES_MAX and input_bytes * _SPILLED <= free_bytes:
        return EngineChoice(
            "local", f"{size} fit this machine, which needs half as long without Spark"
        )
    if not spark_installed:
        return EngineChoice("local", f"{size} would need Spark, but it is not installed")
    if input_bytes <= LOCAL_BYTES_MAX:
        return EngineChoice("spark", f"{size} do not fit this machine's temporary folder")
    return EngineChoice("spark", f"{size} are more than one machine imports quickly")


def _check_asked(asked: object) -> None:
    known = get_args(EngineAsked)
    if asked not in known:
        raise BadRequest(f"engine must be {', '.join(known[:-1])} or {known[-1]}, not {asked!r}")

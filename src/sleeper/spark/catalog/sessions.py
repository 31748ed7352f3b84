"""Makes the tables of an instance a catalog of a Spark session."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Final, Protocol

from sleeper.errors import BadRequest
from sleeper.spark.column_names import quoted_name

if TYPE_CHECKING:  # an extra, and slow to import
    from pyspark.sql import SparkSession

CATALOG_CLASS: Final = "store.sleeper.spark.SleeperCatalog"

# Spark 4.0 and 4.3 say it in other words each.
_JAR_MISSING: Final = re.compile("cannot find (the |catalog )?plugin class", re.IGNORECASE)


class _Instance(Protocol):
    url: str


def catalog_jar() -> str:
    """Return the path of the jar that Spark's driver needs for the catalog.

    For settings of a session that is not started by Sleeper: `spark.jars`, or `--jars` of
    spark-submit. It is for Spark 4.0 to 4.3, and Java 17 and later.
    """
    return str(files("sleeper.spark.catalog") / "sleeper-catalog.jar")


def catalog_settings(url: str | os.PathLike[str] | None, name: str = "sleeper") -> dict[str, str]:
    """Return the settings of a session by which an instance is its catalog `name`.

    Args:
        url: The instance; None for one that is named later.
        name: The catalog's name.
    """
    settings = {f"spark.sql.catalog.{name}": CATALOG_CLASS}
    if url is not None:
        settings[f"spark.sql.catalog.{name}.instance"] = os.fspath(url)
    return settings


def add_catalog(
    spark: SparkSession, instance: str | os.PathLike[str] | _Instance, name: str = "sleeper"
) -> None:
    """Make the tables of an instance a catalog of a running session: `SELECT * FROM sleeper.t`.

    Each query reads a table as it is then. The Python on the driver's machine needs Sleeper.

    Args:
        spark: A session, classic or Connect. Where it has not the catalog's jar, it gets it.
        instance: The instance, or its folder or URL, as the driver and all workers reach it.
        name: What the catalog is called in SQL.

    Raises:
        BadRequest: the session has a catalog of this name already, of something else; or the
            instance is in memory, where no other process can read it.
    """
    url = os.fspath(instance) if isinstance(instance, (str, os.PathLike)) else instance.url
    if url.startswith("memory:"):
        raise BadRequest(
            "Spark reads and writes in its own processes, and a memory:// instance exists in "
            "one process only: use a folder"
        )
    settings = catalog_settings(url, name)
    _check_free(spark, settings, name)
    for setting, value in settings.items():
        spark.conf.set(setting, value)
    try:
        _use(spark, name)
    except Exception as error:
        if _JAR_MISSING.search(str(error)) is None:
            raise
        _add_jar(spark)
        _use(spark, name)


def _check_free(spark: SparkSession, settings: Mapping[str, str], name: str) -> None:
    for setting, value in settings.items():
        present = spark.conf.get(setting, None)
        if present is not None and present != value:
            raise BadRequest(
                f"this session has a catalog {name!r} already, with {setting}={present}, which it "
                "keeps as long as it lives: give another name=..."
            )


def _use(spark: SparkSession, name: str) -> None:
    """Have Spark load the catalog, and the catalog open the instance."""
    spark.sql(f"SHOW TABLES IN {quoted_name(name)}").collect()


def _add_jar(spark: SparkSession) -> None:
    if hasattr(spark, "addArtifacts") and "connect" in type(spark).__module__:
        spark.addArtifacts(catalog_jar())
    else:
        spark.sql(f"ADD JAR '{catalog_jar()}'")

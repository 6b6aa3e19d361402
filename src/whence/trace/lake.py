"""Tables in the forms of data lakes: Delta and Iceberg, written by their own libraries (extra `lake`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from whence.errors import MisuseError, missing_extra

if TYPE_CHECKING:
    import pyarrow as pa

NAMESPACE = "whence"


def save_as(table: pa.Table, target: str) -> None:
    """Write to `parquet:FILE`, `delta:FOLDER` or `iceberg:WAREHOUSE/NAME`; what is there is replaced."""
    form, _, place = target.partition(":")
    if form not in FORMS or not place:
        raise MisuseError(f"--save {target}", "it is not a form and a place", f"Write {' or '.join(USES)}")
    FORMS[form](table, place)


def _parquet(table: pa.Table, place: str) -> None:
    import pyarrow.parquet as pq

    pq.write_table(table, place)


def _delta(table: pa.Table, place: str) -> None:
    try:
        from deltalake import write_deltalake
    except ImportError as error:
        raise missing_extra("a Delta table", "deltalake", "lake") from error
    write_deltalake(place, table, mode="overwrite", schema_mode="overwrite")


def _iceberg(table: pa.Table, place: str) -> None:
    """A table of a local warehouse with a catalogue of its own, in SQLite."""
    try:
        from pyiceberg.catalog.sql import SqlCatalog
    except ImportError as error:
        raise missing_extra("an Iceberg table", "pyiceberg", "lake") from error
    path = Path(place).resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    warehouse = path.parent
    catalog = SqlCatalog(NAMESPACE, uri=f"sqlite:///{warehouse}/catalog.db", warehouse=f"file://{warehouse}")
    catalog.create_namespace_if_not_exists(NAMESPACE)
    name = f"{NAMESPACE}.{path.name}"
    if catalog.table_exists(name):
        catalog.drop_table(name)
    catalog.create_table(name, schema=table.schema).append(table)


FORMS: dict[str, Callable[[pa.Table, str], None]] = {
    "parquet": _parquet,
    "delta": _delta,
    "iceberg": _iceberg,
}
USES = ("parquet:FILE", "delta:FOLDER", "iceberg:WAREHOUSE/NAME")

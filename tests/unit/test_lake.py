"""What a query returns, as a table for other engines, read back by their own libraries."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unit.test_dataset import GRID
from whence.cli.main import main
from whence.errors import MisuseError
from whence.lab.chunks import run_chunk
from whence.trace.dataset import Dataset
from whence.trace.lake import save_as

QUERY = "select run, trace_hash, nodes, rows from runs order by run"


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lake") / "runs"
    run_chunk(GRID, 0, 6, None, Dataset(folder))
    return folder


def save(out: Path, target: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["sql", QUERY, "--in", str(out), "--save", target])
    assert ended.value.code in (0, None)


def expected(out: Path) -> list[dict]:
    wanted = ["run", "trace_hash", "nodes", "rows"]
    return sorted(Dataset(out).read("runs", wanted).to_pylist(), key=lambda row: row["run"])


def test_parquet(out: Path, tmp_path: Path) -> None:
    save(out, f"parquet:{tmp_path}/runs.parquet")
    assert pq.read_table(tmp_path / "runs.parquet").to_pylist() == expected(out)


@pytest.mark.slow
def test_delta(out: Path, tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake", reason="no deltalake: pip install 'whence[lake]'")
    for _ in range(2):  # the second time it replaces the first
        save(out, f"delta:{tmp_path}/runs")
    found = pa.table(deltalake.DeltaTable(str(tmp_path / "runs")).to_pyarrow_table())
    assert sorted(found.to_pylist(), key=lambda row: row["run"]) == expected(out)


@pytest.mark.slow
def test_iceberg(out: Path, tmp_path: Path) -> None:
    sql = pytest.importorskip("pyiceberg.catalog.sql", reason="no pyiceberg: pip install 'whence[lake]'")
    for _ in range(2):
        save(out, f"iceberg:{tmp_path}/house/runs")
    where = {"uri": f"sqlite:///{tmp_path}/house/catalog.db", "warehouse": f"file://{tmp_path}/house"}
    found = sql.SqlCatalog("whence", **where).load_table("whence.runs").scan().to_arrow()
    assert sorted(found.to_pylist(), key=lambda row: row["run"]) == expected(out)


@pytest.mark.slow
def test_polars_reads_the_files(out: Path) -> None:
    polars = pytest.importorskip("polars", reason="no polars: pip install polars")
    files = [str(out / file.path) for file in Dataset(out).files("segments")]
    kinds = polars.read_parquet(files).group_by("kind").len()
    assert kinds["len"].sum() == sum(row["rows"] for row in Dataset(out).read("runs").to_pylist())


def test_a_form_that_is_not_known() -> None:
    with pytest.raises(MisuseError, match="delta:FOLDER"):
        save_as(pa.table({}), "csv:x")

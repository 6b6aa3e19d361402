"""Contact plans as files: they come back as they were, and a changed one is noticed."""

from __future__ import annotations

import pytest

from whence.errors import ContactPlanError
from whence.mobility.plan_io import is_plan, load_plan, save_plan
from whence.mobility.walkers import WalkerCity, walker_plan
from whence.overlay.contacts import make_plan


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_plans_come_back(tmp_path, suffix) -> None:
    odd = make_plan(
        ["a,b", 'q"', "ü", "never met"], [(0, 1, 5, 5), (1, 2, 6, 9)], [(0, 0, 9), (1, 0, 9), (2, 1, 9)], 12
    )
    for plan in (odd, make_plan([], []), walker_plan(1, WalkerCity(duration_s=900.0))):
        save_plan(plan, tmp_path / f"plan.{suffix}")
        assert load_plan(tmp_path / f"plan.{suffix}") == plan


def test_a_changed_plan_is_noticed(tmp_path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "plan.parquet"
    save_plan(make_plan(["a", "b"], [(0, 1, 5, 9)]), path)
    assert is_plan(path)
    table = pq.ParquetFile(path).read()
    pq.write_table(table.set_column(4, "stop_us", pa.array([9, 9, 8])), path)
    with pytest.raises(ContactPlanError, match="sha256"):
        load_plan(path)
    pq.write_table(table.drop_columns(["b"]), path)
    with pytest.raises(ContactPlanError, match="no column 'b'"):
        load_plan(path)
    pq.write_table(table.replace_schema_metadata({}), path)
    with pytest.raises(ContactPlanError, match="no metadata"):
        load_plan(path)
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(ContactPlanError, match="damaged"):
        load_plan(path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a,b\n", "line 1"),
        ("kind,a,b,start_us,stop_us\nnode,a,,,\n", "no row of kind 'end'"),
        ("kind,a,b,start_us,stop_us\nnode,a,,,\nend,,,,9\npresence,z,,0,9\n", "line 4: there is no node 'z'"),
        ("kind,a,b,start_us,stop_us\nnode,a,,,\nend,,,,9\npresence,a,,0,x\n", "line 4: '0' or 'x'"),
        ("kind,a,b,start_us,stop_us\nnode,a,,,\nend,,,,9\nvisit,a,,0,9\n", "line 4: its kind is 'visit'"),
        ("kind,a,b,start_us,stop_us\nnode,a,,\n", "line 2: it has 4 cells"),
        ("kind,a,b,start_us,stop_us\nend,,,,9\nnode,a,,,\npresence,a,,3,2\n", "line 4: it lasts from 3 to 2"),
    ],
)
def test_csv_plans_are_checked(tmp_path, text, reason) -> None:
    path = tmp_path / "plan.csv"
    path.write_text(text)
    with pytest.raises(ContactPlanError) as caught:
        load_plan(path)
    assert reason in str(caught.value)

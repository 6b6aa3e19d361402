"""Whatever is in a file, a reader gives a plan that is in order, or an error of ours that says why not."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from whence.errors import WhenceError
from whence.mobility.ns2 import read_ns2
from whence.mobility.paths import contact_plan
from whence.mobility.plan_io import load_plan, save_plan
from whence.mobility.readers import read_haggle, read_sociopatterns, read_the_one
from whence.overlay.contact_statistics import statistics
from whence.overlay.contacts import ContactPlan, make_plan

SAMPLES = {
    "the-one": "0 CONN 1 2 up\n3.5 CONN 2 1 up\n7 CONN 1 2 down\n8 CONN 3 1 up\n9 CONN 2 1 down\n",
    "haggle": "1 2 10 20 1 0\n2 1 15 30 1 0\n1 9 12 12 1 0\n2 1 40 40 2 10\n",
    "sociopatterns": "100 1 2\n120 1 2\n160 2 3\n",
    "ns2": '$node_(0) set X_ 1\n$ns_ at 2 "$node_(0) setdest 9 9 1"\n3 create 1 5 5\n4 setdest 1 0 0 2\n'
    "9 destroy 1\n",
    "csv": "kind,a,b,start_us,stop_us\nnode,a,,,\nnode,b,,,\nend,,,,9\npresence,a,,0,9\npresence,b,,0,9\n"
    "contact,a,b,2,7\n",
}
READERS: dict[str, Callable[[Path], ContactPlan]] = {
    "the-one": lambda path: read_the_one(path).plan,
    "haggle": lambda path: read_haggle(path, external=True).plan,
    "sociopatterns": lambda path: read_sociopatterns(path).plan,
    "ns2": lambda path: contact_plan(read_ns2(path).paths, 5.0),
    "csv": load_plan,
}
WORDS = [
    b"-1",
    b"nan",
    b"1e99",
    b"inf",
    b"\xff",
    b"",
    b" ",
    b"\n",
    b"0",
    b"99999999999999999999",
    b"up",
    b"\x00",
    b"1",
]


@pytest.mark.parametrize("name", SAMPLES)
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_damaged_files(name: str, seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    text = SAMPLES[name].encode()
    for _ in range(draw.randrange(1, 4)):
        at = draw.randrange(len(text) + 1)
        text = text[:at] + draw.choice(WORDS) + text[at + draw.randrange(4) :]
    path = tmp_path / f"file.{name}"
    path.write_bytes(text)
    try:
        plan = READERS[name](path)
    except WhenceError as error:
        refused = error
    else:
        refused = None
    if refused is not None:
        assert all((refused.what, refused.reason, refused.fix))
        return
    assert make_plan(plan.nodes, plan.contacts, plan.presence, plan.stop_us) == plan
    statistics(plan)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 30), st.integers(0, 9)).filter(
            lambda row: row[0] != row[1]
        )
    ),
    kind=st.sampled_from(["parquet", "csv"]),
)
def test_any_plan_is_in_order_and_comes_back(rows: list[Any], kind: str, tmp_path: Path) -> None:
    contacts = [(a, b, start, start + long) for a, b, start, long in rows]
    plan = make_plan([f"n{at}" for at in range(5)], contacts)
    assert len(plan.contacts) + plan.joined == len(rows)
    covered = {(min(a, b), max(a, b), at) for a, b, start, stop in contacts for at in range(start, stop + 1)}
    assert covered == {(a, b, at) for a, b, start, stop in plan.contacts for at in range(start, stop + 1)}
    last: dict[tuple[int, int], int] = {}
    for a, b, start_us, stop_us in plan.contacts:
        assert last.get((a, b), -1) < start_us
        last[a, b] = stop_us
    assert list(plan.contacts) == sorted(plan.contacts, key=lambda row: (row.start_us, row.a, row.b))
    save_plan(plan, tmp_path / f"plan.{kind}")
    assert load_plan(tmp_path / f"plan.{kind}") == plan

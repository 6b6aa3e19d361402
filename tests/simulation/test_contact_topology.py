"""Contact plans as topology: links that come and go, nodes that enter and leave, what is cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.running import simulate, simulate_in
from support.simulating import KeptRows
from whence.errors import ScenarioError
from whence.sim.files import from_dict, load
from whence.sim.links_planned import meetings, plan_of
from whence.sim.replay import replay
from whence.trace.schema import Kind, Level
from whence.verify.run import verify_trace

ROOT = Path(__file__).parents[2]

PLAIN: dict[str, Any] = {
    "nodes": 3,
    "protocol": "oppnet",
    "params": {"gap_us": 100, "setup_max_us": 0},
    "topology": {
        "kind": "contacts",
        "rows": [[0, 1, 1_000, 4_000], [1, 2, 4_000, 9_000], [0, 1, 8_000, 8_000]],
        "presence": [[0, 0, 5_000], [1, 500, 20_000], [2, 4_000, 9_000], [2, 12_000, 20_000]],
    },
    "link": {"delay": {"kind": "constant", "value_us": 50}},
    "workloads": [{"kind": "periodic", "interval_us": 2_500, "start_us": 300}],
    "stop": {"duration_us": 20_000},
}
PLAIN["topology"]["rows"].pop()  # n0 is away at 8,000


def changed(**changes: Any) -> dict[str, Any]:
    return {**PLAIN, **changes}


def test_links_come_and_go_and_nodes_enter_and_leave_in_the_right_order() -> None:
    rows = KeptRows()
    simulate(from_dict(PLAIN), rows, check=True)
    seen = [
        (row[1], row[2].name, row[5])
        for row in rows.rows
        if row[0] == "n2" and row[2] in (Kind.CRASH, Kind.RESTART, Kind.LINK_UP, Kind.LINK_DOWN)
    ]
    assert seen == [
        (0, "CRASH", None),
        (4_000, "RESTART", None),
        (4_000, "LINK_UP", "n1"),
        (9_000, "LINK_DOWN", "n1"),
        (9_000, "CRASH", None),
        (12_000, "RESTART", None),
    ]


def test_nobody_broadcasts_while_away() -> None:
    rows = KeptRows()
    result = simulate(from_dict(PLAIN), rows)
    times = {name: [row[1] for row in rows.of(Kind.BROADCAST, name)] for name in ("n0", "n1", "n2")}
    assert times["n0"] == [300, 2_800]
    assert times["n2"] == [5_300, 7_800, 12_800, 15_300, 17_800]
    assert result.skipped_broadcasts == 24 - result.broadcasts > 0


def test_broadcasts_can_count_from_each_entry() -> None:
    workloads = [{"kind": "periodic", "interval_us": 2_500, "start_us": 300, "from_entry": True, "count": 2}]
    rows = KeptRows()
    result = simulate(from_dict(changed(workloads=workloads)), rows)
    assert [row[1] for row in rows.of(Kind.BROADCAST, "n2")] == [4_300, 6_800, 12_300, 14_800]
    assert result.skipped_broadcasts == 0


def test_a_message_is_carried_and_what_is_in_flight_at_the_cut_is_lost() -> None:
    rows = KeptRows()
    result = simulate(from_dict(PLAIN), rows)
    delivered = {f"{row[3]}:{row[4]}" for row in rows.of(Kind.DELIVER, "n2")}
    assert {"n0:1", "n0:2"} <= delivered  # n0 left before n2 had met anybody
    # Slots end every 100 us from 1,050 and 1,100 on: shift the end of the contact over an arrival.
    workloads = [{"kind": "periodic", "interval_us": 90_000, "start_us": 300, "senders": ["n0"]}]
    lost = []
    for stop_us in (1_249, 1_250, 1_251):
        topology = {"kind": "contacts", "rows": [[0, 1, 1_000, stop_us], [0, 2, 15_000, 16_000]]}
        result = simulate(from_dict(changed(topology=topology, workloads=workloads, params=PLAIN["params"])))
        lost.append((result.lost_packets, result.deliveries))
    assert lost == [(1, 2), (1, 2), (0, 3)]


def test_the_same_scenario_gives_the_same_rows_and_they_replay(tmp_path: Path) -> None:
    results = []
    for name in ("one", "two"):
        result = simulate_in(from_dict(PLAIN), tmp_path / name, Level.ALL)
        results.append(result)
        [report] = verify_trace(tmp_path / name)
        assert report.ok
    assert results[0] == results[1]
    again = replay(tmp_path / "one")
    assert again.ok, again.mismatches


def test_a_plan_can_be_read_from_a_file_in_any_known_format(tmp_path: Path) -> None:
    events = "1.0 CONN a b up\n2.5 CONN a b down\n3.0 CONN b c up\n4.0 CONN b c down\n"
    (tmp_path / "events.txt").write_text(events)
    topology = {"kind": "contacts", "file": str(tmp_path / "events.txt"), "format": "the-one"}
    scenario = from_dict(changed(topology=topology, stop={"duration_us": 5_000_000}))
    plan = plan_of(scenario)
    assert plan is not None
    assert [tuple(row) for row in plan.contacts] == [
        (0, 1, 1_000_000, 2_500_000),
        (1, 2, 3_000_000, 4_000_000),
    ]
    assert meetings(plan, 3) == [(1,), (0, 2), (1,)]
    assert simulate(scenario).deliveries > 0


def test_the_example_of_the_walkers_holds_what_it_says() -> None:
    safe = simulate(load(ROOT / "examples" / "scenarios" / "walkers.toml"))
    assert safe.deliveries > 5_000
    assert safe.expiries == {}


def contacts(**fields: Any) -> dict[str, Any]:
    return {"topology": {"kind": "contacts", **fields}}


FROM_ENTRY = {"kind": "periodic", "interval_us": 9, "from_entry": True}


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"nodes": 4}, "has 3, not 4"),
        (contacts(), "0 sources"),
        (contacts(rows=[], generator="walkers"), "2 sources"),
        (contacts(rows=[[0, 1, 5, 3]]), "from 5 to 3"),
        (contacts(generator="walkers", options={"range": 1}), "options.range"),
        (contacts(generator="walkers", options={"rows": "x"}), "topology.options"),
        (contacts(generator="cars"), "generator"),
        (contacts(file="no such file"), "no such file"),
        ({"link": {"retransmit_us": 10}}, "retransmit_us"),
        ({"protocol": "vcube", "params": {}}, "topology"),
        ({"faults": [{"kind": "crash", "nodes": "n2", "at_us": 5_000}]}, "takes it away"),
        ({"topology": {"kind": "full"}, "workloads": [FROM_ENTRY]}, "from_entry"),
    ],
)
def test_what_cannot_be_is_refused_with_its_name(change: dict[str, Any], what: str) -> None:
    with pytest.raises(ScenarioError, match=what):
        from_dict(changed(**change))

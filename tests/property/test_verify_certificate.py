"""The certificate of cleanness: never for a run with a finding, and for clean runs of broadcasts."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

import pytest

from support import traces
from whence.trace.memory import MemoryTrace
from whence.trace.reader import Event
from whence.trace.schema import Kind, PromisesMade
from whence.verify import run as run_module
from whence.verify.analysis import analyse
from whence.verify.certificate import certify
from whence.verify.kernels import Kernels, compiled, plain
from whence.verify.load import Loader, RunEvents
from whence.verify.report import Counts
from whence.verify.run import verify_events, verify_trace

Rows = dict[str, list[tuple[Kind, str, int]]]  # node -> its events


def causal_run(rng: random.Random) -> Rows:
    """A clean run: nodes broadcast and deliver at random, each message after its past."""
    names = [f"n{at}" for at in range(rng.randint(1, 5))]
    speakers = rng.sample(names, rng.randint(1, len(names)))
    rows: Rows = {name: [] for name in names}
    past: dict[tuple[str, int], dict[str, int]] = {}
    seen = {name: dict.fromkeys(names, 0) for name in names}
    sent = dict.fromkeys(names, 0)
    budget = rng.randint(1, 15)
    while True:
        moves = [("broadcast", name, name) for name in speakers if sum(sent.values()) < budget]
        for name in names:
            for origin in names:
                number = seen[name][origin] + 1
                needs = past.get((origin, number))
                if needs is not None and all(seen[name][each] >= count for each, count in needs.items()):
                    moves.append(("deliver", name, origin))
        if not moves:
            return rows
        what, name, origin = rng.choice(moves)
        if what == "broadcast":
            past[name, sent[name] + 1] = seen[name] | {name: sent[name]}
            sent[name] += 1
            rows[name].append((Kind.BROADCAST, name, sent[name]))
        else:
            seen[name][origin] += 1
            rows[name].append((Kind.DELIVER, origin, seen[name][origin]))


def events_of(rows: Rows) -> list[Event]:
    return [
        Event("r", node, seq, seq, kind, origin, number, None, 0, 0, None)
        for node, of_node in rows.items()
        for seq, (kind, origin, number) in enumerate(of_node)
    ]


def loaded(events: Iterable[Event], members: Iterable[str]) -> RunEvents:
    memory = MemoryTrace()
    memory.extend(events)
    loader = Loader(members)
    for batch in memory.table("r").to_batches():
        loader.add(batch)
    return loader.finish()


def damage(rows: Rows, rng: random.Random) -> Rows:
    """One change at one node: two events swapped, one lost, repeated or moved."""
    rows = {node: list(of_node) for node, of_node in rows.items()}
    of_node = rows[rng.choice([node for node in rows if rows[node]])]
    at, to = rng.randrange(len(of_node)), rng.randrange(len(of_node))
    match rng.randrange(4):
        case 0:
            of_node[at], of_node[to] = of_node[to], of_node[at]
        case 1:
            of_node.pop(at)
        case 2:
            of_node.insert(to, of_node[at])
        case _:
            of_node.insert(to, of_node.pop(at))
    return rows


def check(kernels: Kernels, count: int, seed: int) -> Counter[str]:
    rng = random.Random(seed)
    seen: Counter[str] = Counter()
    for _ in range(count):
        clean = causal_run(rng)
        members = list(clean)
        whole = loaded(events_of(clean), members)
        sent = sum(kind is Kind.BROADCAST for of_node in clean.values() for kind, _, _ in of_node)
        assert certify(kernels, whole) == (sent or None)
        changed = loaded(events_of(damage(clean, rng) if sent else clean), members)
        run, others = traces.random_run(rng)
        broken = Loader(others)
        for batch in traces.record(run).table("r", segment_events=rng.randint(1, 6)).to_batches():
            broken.add(batch)
        for events in (changed, broken.finish()):
            counts = analyse(events, 0).counts
            proved = certify(kernels, events) is not None
            assert not proved or counts == Counts()
            seen["clean" if counts == Counts() else "with findings"] += 1
            seen["certified"] += proved
    return seen


def test_no_certificate_where_there_is_a_finding() -> None:
    seen = check(plain(), 150, 1)
    assert seen["with findings"] > 100
    assert seen["clean"] > 5


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(2, 12))
def test_no_certificate_where_there_is_a_finding_in_100000_traces(seed: int) -> None:
    kernels = compiled()
    assert kernels is not None
    assert check(kernels, 6_000, seed)["with findings"] > 8_000


def test_compiled_and_plain_agree() -> None:
    kernels = compiled()
    if kernels is None:
        pytest.skip("numba is not installed")
    assert check(kernels, 100, 77) == check(plain(), 100, 77)


def test_a_circle_of_messages_that_wait_for_each_other_is_not_certified() -> None:
    rows: Rows = {
        "a": [(Kind.DELIVER, "b", 1), (Kind.BROADCAST, "a", 1), (Kind.DELIVER, "a", 1)],
        "b": [(Kind.DELIVER, "a", 1), (Kind.BROADCAST, "b", 1), (Kind.DELIVER, "b", 1)],
    }
    assert certify(plain(), loaded(events_of(rows), rows)) is None


@pytest.mark.parametrize("certified", [True, False])
def test_the_report_is_the_same_with_and_without(certified: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(5)
    if compiled() is None:
        pytest.skip("numba is not installed")
    proved: list[int | None] = []

    def noted(kernels: Kernels, events: RunEvents) -> int | None:
        proved.append(certify(kernels, events) if certified else None)
        return proved[-1]

    monkeypatch.setattr(run_module, "certify", noted)
    for _ in range(20):
        clean = causal_run(rng)
        report = verify_events(events_of(clean), PromisesMade(complete=True), clean)
        sent = sum(kind is Kind.BROADCAST for of_node in clean.values() for kind, _, _ in of_node)
        assert (report.ok, report.broadcasts, report.deliveries) == (True, sent, sent * len(clean))
        assert report.nodes == len(clean)
    assert any(proved) is certified


def test_a_trace_without_peers_is_read_without_that_column(tmp_path) -> None:
    from whence.lab.run import run
    from whence.sim.files import from_dict
    from whence.trace.reader import open_trace

    load = {"kind": "poisson", "interval_us": 10_000}
    scenario = {"nodes": 3, "protocol": "vector", "workloads": [load], "stop": {"duration_us": 50_000}}
    for level, peers in (("deliveries", False), ("all", True)):
        outcome = run(from_dict(scenario | {"record": {"level": level}}), tmp_path / level)
        assert open_trace(tmp_path / level).has_peers(outcome.run) is peers
        (report,) = verify_trace(tmp_path / level)
        assert report.ok
        assert report.deliveries == outcome.deliveries

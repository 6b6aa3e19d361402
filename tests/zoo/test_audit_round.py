"""Our own traces, exported for ShiViz and read back as a foreign log, get the verdict of the verifier.

For every protocol and every mutant of the zoo: the same counts of causal, fifo, duplicate and created.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest

from simulation.test_vcube_faults import CASES, STORMY, is_caught
from support import barrier_worlds, deadline_worlds, domain_runs, traces
from support.prc_worlds import one_run
from support.running import simulate
from whence.foreign.judge import judge
from whence.foreign.read import read_log
from whence.foreign.report import NOT_JUDGED
from whence.sim.files import from_dict
from whence.trace.exporters.shiviz import export
from whence.trace.memory import MemoryTrace
from whence.trace.reader import Event
from whence.trace.schema import Kind, PromisesMade
from whence.verify.run import verify_table
from zoo.mutants.barrier import ORDER
from zoo.mutants.baselines import ZOO
from zoo.mutants.carry import CARRY
from zoo.mutants.deadline import DEADLINE
from zoo.mutants.prc import MUTANTS as PRC
from zoo.test_zoo import BASE, SCENARIOS

EVERYTHING = PromisesMade(causal=True, fifo=True, no_duplicates=True, complete=False)
SAME = ("causal", "fifo", "duplicate", "created")
PROTOCOLS = ("fifo", "vector", "reliable", "barrier")

Run = Callable[[int], Any]


class InMemory:
    """As much of a trace as the exporter asks for."""

    runs = ("run",)
    path = Path("memory")

    def __init__(self, memory: MemoryTrace) -> None:
        self._table = MemoryTrace.table(memory, "run")

    def events(self, run: str) -> Iterator[Event]:
        for row in self._table.to_pylist():
            for at in range(row["events"]):
                names = [
                    None if row[key][at] < 0 else row["names"][row[key][at]] for key in ("origin", "peer")
                ]
                yield Event(
                    run, row["node"], row["first_seq"] + at, row["time_us"][at], Kind(row["kind"][at]),
                    names[0], row["number"][at], names[1], row["total_bytes"][at], row["control_bytes"][at],
                    row["detail"][at],
                )  # fmt: skip


def deadline_seeds() -> Iterator[int]:
    return (seed for seed in count() if deadline_worlds.scenario(seed)["protocol"] == "odca")


def deadline(make: Any, seed: int) -> Any:
    data = deadline_worlds.scenario(next(islice(deadline_seeds(), seed, None)))
    return deadline_worlds.judge(from_dict(data), make, **data["params"])


def simulated(seed: int, described: dict[str, Any], make: Any = None) -> None:
    memory = MemoryTrace()
    simulate(from_dict({**described, "seed": seed}), memory, make=make)
    memory.table("run")


def invented(seed: int) -> None:
    """A run in which some nodes deliver what no one broadcast, and one of them twice."""
    memory = MemoryTrace()
    simulate(from_dict({**BASE, "protocol": "fifo", "seed": seed}), memory)
    for node in ("n0", "n0", "n1"):
        memory.event(node, 10**9, Kind.DELIVER, "ghost", 1 + seed % 3)
    memory.table("run")


def storm(mutant: Any) -> Run:
    seeds = STORMY.get(mutant, range(20))
    return lambda seed: is_caught(mutant, seeds[seed : seed + 1])


def over_links(variant: Any) -> Run:
    make, world = variant.over_links, variant.world
    return lambda seed: barrier_worlds.random_run(seed, "barrier", make=make, **world).verdict()


def over_contacts(variant: Any) -> Run:
    make, world = variant.over_contacts, variant.world
    return lambda seed: barrier_worlds.random_run(seed, "oppnet", make=make, **world).verdict()


RUNS: dict[str, Run] = {
    **{each: lambda seed, each=each: simulated(seed, {**BASE, "protocol": each}) for each in PROTOCOLS},
    **{f"baselines {each.name}": lambda seed, each=each: simulated(seed, SCENARIOS[each.scenario], each.make)
       for each in ZOO},
    **{f"order {each.name}": over_links(each) for each in ORDER},
    **{f"carry {each.name}": over_contacts(each) for each in CARRY},
    **{f"deadline {each.name}": lambda seed, each=each: deadline(each.make, seed) for each in DEADLINE},
    **{f"prc {each.name}": lambda seed, each=each:
       one_run(seed, prepare=each.prepare, make=each.make, **each.params).problems() for each in PRC},
    **{f"members {each.__name__}": storm(each) for each in (*STORMY, *CASES)},
    "vcube": lambda seed: simulated(seed, {**BASE, "protocol": "vcube", "topology": {"kind": "full"}}),
    "matrix": lambda seed: domain_runs.judge(domain_runs.scenario(5, seed, "matrix")),
    "domains": lambda seed: domain_runs.judge(domain_runs.scenario(6, seed)),
    "invented": invented,
    "prc": lambda seed: one_run(seed).problems(),
    "odca": lambda seed: deadline(None, seed),
    "made up": lambda seed: traces.record(traces.random_run(random.Random(seed))[0]).table("run"),
}  # fmt: skip


def recorded(monkeypatch: pytest.MonkeyPatch, run: Run, seed: int) -> list[MemoryTrace]:
    """The traces of one run, whoever makes them."""
    found: list[MemoryTrace] = []
    table = MemoryTrace.table

    def watched(memory: MemoryTrace, *args: Any) -> Any:
        if memory not in found:
            found.append(memory)
        return table(memory, *args)

    with monkeypatch.context() as patched:
        patched.setattr(MemoryTrace, "table", watched)
        run(seed)
    assert found
    return found


def compare(memory: MemoryTrace, file: Path) -> dict[str, int] | None:
    """What both found; None for a run that no execution can have: the two set different events aside."""
    table = memory.table("run")
    report = verify_table(table, EVERYTHING, sorted(set(table.column("node").to_pylist())))
    if report.counts.malformed or not report.broadcasts:
        return None
    export(InMemory(memory), file)  # type: ignore[arg-type]
    audit = judge(read_log(file))
    expected = {name: getattr(report.counts, name) for name in SAME}
    for name in SAME:
        each = audit.properties[name]
        assert (0 if each.status == NOT_JUDGED else each.count) == expected[name], (name, each, report)
    assert audit.counts("broken").keys() - {"causal", "fifo", "created"} == set()
    return expected


@pytest.mark.parametrize("name", RUNS)
def test_a_round_trip_keeps_the_verdict(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for memory in recorded(monkeypatch, RUNS[name], 1):
        compare(memory, tmp_path / "out.log")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_thousand_round_trips(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found: Counter[str] = Counter()
    compared = 0
    for seed in count():
        for name, run in RUNS.items():
            if name.startswith("members") and seed:
                continue  # heavy, and STORMY has its own seeds
            for memory in recorded(monkeypatch, run, seed):
                counts = compare(memory, tmp_path / "out.log")
                compared += counts is not None
                found.update(counts or {})
        if compared >= 1000:
            break
    assert all(found[name] for name in SAME), found

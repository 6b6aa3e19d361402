"""The measures of the study of domains: of every stamp, and of every clock's work, through the cores.

    messages          point-to-point messages that were delivered
    packets           hops
    stamp_entries     entries of a matrix in all stamps; the paper's account spends 4 bytes on each
    control_bytes     all that is not payload on the wire, frames included (our MessagePack, not the paper's
    account)
    clock_work        entries looked at or written by stamping, testing and merging
    image_bytes       the paper's persistence: after each change of a clock its whole image, 4 bytes an entry
    log_bytes         ours: the input that was logged, as MessagePack (whence.mom.records)
    predicted_cost    hops x (alpha + size^2) of these messages by the planner's formula
    measured_cost     alpha x packets + stamp entries: the same where stamps are whole matrices

Spark's workers import this module.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import isqrt, log
from pathlib import Path
from typing import NamedTuple, cast

from whence.core.message import NodeId, Packet
from whence.core.protocol import Protocol
from whence.lab.observer import Observer
from whence.lab.run import run
from whence.overlay.domain_graph import Groups, domain_graph, organised
from whence.overlay.planner import ALPHA, TrafficMatrix, evaluate
from whence.protocols.domains.domains import DomainPacket, Domains
from whence.session.records import Arrived, RecordCodec
from whence.sim.model import Scenario, node_names
from whence.sim.outcome import Outcome
from whence.studies.domains.fit import (
    BUS,
    FLAT,
    LARGE_FROM,
    TIMES,
    WAY_BUS,
    WAY_FLAT,
    crossing,
    exponent,
    fit,
    gains,
    growth,
    medians,
    rounds,
)
from whence.studies.domains.fit import slope as slope_of
from whence.studies.domains.trees import TREE, TREE_DEPTHS, TREE_FANOUT, TREE_SERVERS, tree_servers
from whence.studies.results import Derived, Label, Results, Row
from whence.trace.measures import Value
from whence.trace.schema import Kind, Level

_encode = RecordCodec(DomainPacket).encode
Place = tuple[int, NodeId]  # a domain, a server in it
Key = tuple[str, int]  # a message
LOCAL_MAX = 16  # servers: what is checked of each domain grows with the square of them


def run_point(scenario: Scenario, folder: Path, level: Level | None = None) -> Outcome:
    """Run a scenario of the study and write its trace and all its measures."""
    watch = Watch(scenario)
    return run(scenario, folder, level=level, observers=[watch], measure=watch.costs)


class Watch(Observer):
    """Counts every packet's stamp and every clock's work."""

    level = Level.DELIVERIES

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._between: Counter[tuple[NodeId, NodeId]] = Counter()
        self._groups: Groups = ()
        self._stamp_entries = self._control_bytes = self._log_bytes = 0
        self._local = LocalOrder() if scenario.nodes <= LOCAL_MAX else None

    def event(
        self,
        node: str,
        time_us: int,
        kind: Kind,
        origin: str | None = None,
        number: int = 0,
        peer: str | None = None,
        total_bytes: int = 0,
        control_bytes: int = 0,
        detail: str | None = None,
    ) -> None:
        """Count one delivery."""
        if kind == Kind.DELIVER and origin is not None:
            self._between[origin, node] += 1
            if self._local is not None:
                self._local.delivered(node, (origin, number))

    def sent(self, core: Protocol, to: tuple[NodeId, ...], packet: Packet, time_us: int) -> None:
        """Count one hop."""
        domains, hop = cast(Domains, core), cast(DomainPacket, packet)
        self._stamp_entries += domains.consumers[hop.domain].clock.stamp_entries(hop.stamp)
        self._control_bytes += core.sizes(packet).control_bytes
        self._log_bytes += len(_encode(Arrived(time_us, core.me, hop.sent, (packet,))))
        if self._local is not None:
            self._local.sent(hop.domain, core.me, to[0], (domains.members[hop.origin], hop.number))

    def finished(self, cores: Sequence[Protocol], time_us: int) -> Mapping[str, Value]:
        """Return what the packets and the clocks cost."""
        domains = [cast(Domains, core) for core in cores]
        self._groups = domains[0].graph.groups
        clocks = [consumer.clock for core in domains for consumer in core.consumers.values()]
        return {
            "messages": sum(self._between.values()),
            "stamp_entries": self._stamp_entries,
            "control_bytes": self._control_bytes,
            "log_bytes": self._log_bytes,
            "clock_work": sum(clock.work for clock in clocks),
            "image_bytes": sum(clock.changes * clock.image_bytes for clock in clocks),
            **({} if self._local is None else {"domain_violations": self._local.violations}),
        }

    def costs(self, outcome: Outcome) -> dict[str, Value]:
        """Return the costs by the planner's account."""
        packets = outcome.packets or 0
        counted: dict[str, Value] = {
            "packets": packets,
            "measured_cost": ALPHA * packets + self._stamp_entries,
        }
        if not self._scenario.params.get("unsafe_cycles"):  # a cycle has no tree to compute with
            names = node_names(self._scenario.nodes)
            cost = evaluate(TrafficMatrix(self._between, names), self._groups)
            counted["predicted_cost"] = round(cost.per_message * sum(self._between.values()))
        return counted


class _Hop(NamedTuple):
    domain: int
    sender: NodeId
    past: dict[tuple[NodeId, NodeId], int]  # pair of servers -> hops of the domain that its sender knew of
    number: int  # of its pair


class LocalOrder:
    """Counts the hops that overtook another one of their own domain.

    Theorem 1 speaks of runs whose parts are all in order. A hop is a message of its domain: it is sent when a
    server gives it to its link and delivered when that server delivers it or forwards it. Judged by what was
    sent and delivered alone, with sets of counts, not by the clocks of the protocol: a hop must be its
    sender's next one to that server, and all hops to that server of which its sender knew must have been
    delivered there.
    """

    def __init__(self) -> None:
        self.violations = 0
        self._known: defaultdict[Place, Counter[tuple[NodeId, NodeId]]] = defaultdict(Counter)
        self._got: defaultdict[Place, Counter[NodeId]] = defaultdict(Counter)
        self._flying: dict[tuple[Key, NodeId], _Hop] = {}

    def sent(self, domain: int, sender: NodeId, to: NodeId, key: Key) -> None:
        """A server gives a hop to its link; what it forwards it has delivered in the domain it came from."""
        self.delivered(sender, key)
        known = self._known[domain, sender]
        past = dict(known)
        known[sender, to] += 1
        self._flying[key, to] = _Hop(domain, sender, past, known[sender, to])

    def delivered(self, node: NodeId, key: Key) -> None:
        """A hop is at its end; nothing happens if none was on its way there."""
        hop = self._flying.pop((key, node), None)
        if hop is None:
            return
        got = self._got[hop.domain, node]
        missed = any(count > got[k] for (k, to), count in hop.past.items() if to == node and k != hop.sender)
        self.violations += missed or hop.number != got[hop.sender] + 1
        got[hop.sender] += 1
        known = self._known[hop.domain, node]
        for pair, count in (*hop.past.items(), ((hop.sender, node), hop.number)):
            known[pair] = max(known[pair], count)


def derive(row: Row) -> dict[str, float | None]:
    """The numbers of one run, each per message."""
    counted = row.counted
    if not counted or not counted["messages"]:
        return {}
    per = 1 / counted["messages"]
    return {
        "stamp_bytes": 4 * counted["stamp_entries"] * per,
        "wire_bytes": counted["control_bytes"] * per,
        "work": counted["clock_work"] * per,
        "image_bytes": counted["image_bytes"] * per,
        "log_bytes": counted["log_bytes"] * per,
        "hops": counted["packets"] * per,
        "measured_cost": counted["measured_cost"] * per,
        "predicted_cost": counted["predicted_cost"] * per if "predicted_cost" in counted else None,
        "stamp_share": counted["stamp_entries"] / counted["packets"] / int(row.labels["nodes"]) ** 2,
        "domain_violations": counted.get("domain_violations"),
    }


def stamp_bytes(organisation: str, stamps: str, nodes: int) -> int:
    """The stamps of one message of ping-pong by the paper's account, 4 bytes an entry.

    Section 6.2: whole matrices cost s² entries in each domain on the way, which is n² in one domain and three
    times √n² on the bus; Updates sends one entry a hop.
    """
    if stamps != "full":
        return 4 if organisation == "flat" else 12
    names = node_names(nodes)
    graph = domain_graph(organised(organisation, names))
    return sum(4 * len(graph.groups[domain]) ** 2 for domain, _ in graph.path(names[1], names[-1]))


def slope(results: Results, measure: str, organisation: str, stamps: str) -> float | None:
    """Of a measure of ping-pong over the square sizes, on logarithmic axes, by least squares."""
    points: list[tuple[float, float]] = []
    for nodes in results.values("nodes"):
        found = results.estimate(
            measure, part="cost", workload="ping-pong", organisation=organisation, stamps=stamps, nodes=nodes
        )
        if found is not None and found.mean > 0 and isqrt(int(nodes)) ** 2 == nodes:
            points.append((log(float(nodes)), log(found.mean)))
    if len(points) < 2:
        return None
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    fitted = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    return round(fitted, 9) + 0.0  # rounding errors of a constant are no slope, and 0 has no sign


def derived(results: Results) -> Iterator[Derived]:
    """Differences from formulas, slopes of clock work and images, and the shapes of measured times."""
    for row in results.select(part="cost", workload="ping-pong"):
        organisation, stamps = (str(row.labels[name]) for name in ("organisation", "stamps"))
        nodes = int(row.labels["nodes"])
        if organisation in ("daisy", "tree") and stamps != "full":
            continue
        if organisation == "bus" and isqrt(nodes) ** 2 != nodes:
            continue
        off = row.measure("stamp_bytes") - stamp_bytes(organisation, stamps, nodes)
        yield Derived({**row.labels, "part": "off"}, {"stamp_bytes_off": off})
    for organisation in ("flat", "bus"):
        for stamps in ("full", "updates-scan", "updates"):
            place: dict[str, Label] = {"part": "slope", "organisation": organisation, "stamps": stamps}
            slopes = {name: slope(results, name, organisation, stamps) for name in ("work", "image_bytes")}
            image = slopes["image_bytes"]
            yield Derived(place, {**slopes, "image_everywhere": None if image is None else image + 1})
    yield from _tree_law(results)
    for row in results.select(part="plan"):
        if row.measures.get("predicted_cost") is not None:
            off = row.measure("predicted_cost") - row.measure("measured_cost")
            yield Derived({**row.labels, "part": "planned"}, {"predicted_off": off})
    yield from _live(results)


def _tree_law(results: Results) -> Iterator[Derived]:
    """Section 6.2: servers of a tree of depth d, and what a message between its farthest leaves costs."""
    for row in results.select(part=TREE):
        depth = TREE_DEPTHS[str(row.labels["organisation"])]
        servers, entries = tree_servers(depth), (2 * depth + 1) * TREE_SERVERS**2
        measured = row.measure("stamp_bytes") / 4
        bound = 2 * TREE_SERVERS**2 * log(servers) / log(TREE_FANOUT)
        off = {
            "tree_servers_off": int(row.labels["nodes"]) - servers,
            "tree_cost_off": measured - entries,
            "tree_cost": measured,
            "below_log": bound - measured,
        }
        yield Derived({**row.labels, "part": "tree law"}, off)


def _live(results: Results) -> Iterator[Derived]:
    """The shapes of figures 8, 9, 11 and 12, as far as enough was measured for them."""
    for kind in (FLAT, FLAT._replace(workload="broadcast"), BUS, WAY_FLAT, WAY_BUS):
        place: dict[str, Label] = {**kind._asdict(), "shape": "growth"}
        for measure in TIMES:
            values = growth(results, kind, measure)
            found = slope_of(values)
            if found is not None:
                large = sum(nodes >= LARGE_FROM for nodes in values)
                yield Derived({**place, "of": measure}, {f"{measure}_slope": found}, large)
    for kind in (FLAT, FLAT._replace(workload="broadcast"), BUS, WAY_FLAT, WAY_BUS):
        values = growth(results, kind, "cpu_us")
        power = exponent(values)
        if power is not None:
            yield Derived({**kind._asdict(), "shape": "power"}, {"exponent": power}, len(values))
    yield from _faster(results)
    for measure in TIMES:
        gained = gains(results, FLAT, BUS, measure)
        if gained and max(gained) >= LARGE_FROM:
            labels: dict[str, Label] = {"shape": "crossing", "of": measure, "nodes": max(gained)}
            yield Derived(labels, {f"{measure}_crossing": crossing(gained)})
    for kind, power in ((WAY_FLAT, 2), (WAY_BUS, 1)):
        line = fit(growth(results, kind, "cpu_us"), power)
        if line is not None:
            yield Derived({**kind._asdict(), "shape": "line"}, {"share": line.share})


def _faster(results: Results) -> Iterator[Derived]:
    """Figure 12 round by round at the largest size, and what does not grow: a message on the same server."""
    flat, bus = (rounds(results, kind, "cpu_us") for kind in (FLAT, BUS))
    both = [nodes for nodes in flat if nodes in bus]
    if both and max(both) >= LARGE_FROM:
        largest = max(both)
        for at, value in flat[largest].items():
            labels: dict[str, Label] = {"shape": "gain", "nodes": largest, "seed": at}
            yield Derived(labels, {"gain": value / bus[largest][at]})
    local = medians(results, BUS._replace(workload="local"), "cpu_us")
    if len(local) > 1:
        first, last = min(local), max(local)
        there = {"local_growth": local[last] / local[first], "live_largest": float(last)}
        workloads = {row.labels["workload"] for row in results.select(part="live")}
        yield Derived({"shape": "local", "nodes": last}, {**there, "live_series": float(len(workloads))})

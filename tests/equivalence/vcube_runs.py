"""Random scenarios of VCube, and what a core run shows: for holding the kernel to the core."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from support.running import simulate
from support.simulating import KeptRows
from whence.core.effects import Deliver, Effects, Send
from whence.core.message import NodeId, Packet
from whence.kernels.vcube.kernel import VCubeMeasures, trimmed
from whence.kernels.vcube.state import BYTES_MAX
from whence.protocols.vcube.core import VCube
from whence.protocols.vcube.wire import paper_message_bytes
from whence.sim.distributions import Constant, Normal, Uniform
from whence.sim.model import Burst, Full, Hypercube, Link, Periodic, Poisson, Scenario, Stop, Window
from whence.sim.outcome import Outcome
from whence.trace.schema import Kind

Row = tuple[Any, ...]


def random_scenario(seed: int, largest: int = 64) -> Scenario:
    """Any scenario inside the kernel's envelope, small ones more often than large ones."""
    draw = random.Random(seed)
    nodes = min(draw.choice([*range(1, 18), 24, 32, 32, 33, 48, 63, 64]), largest)
    scale_us = draw.choice([1, 50, 1_000, 100_000])  # coarse time makes ties
    delay = draw.choice(
        [
            Constant(value_us=draw.randrange(3) * scale_us),
            Uniform(low_us=0, high_us=draw.randrange(8) * scale_us),
            Normal(mean_us=scale_us, deviation_us=draw.choice([0, scale_us // 4, scale_us, 3 * scale_us])),
        ]
    )
    window_us = draw.randrange(1, 12) * scale_us
    few = max(1, 160 // nodes)  # messages per sender
    payload_bytes = draw.choice([0, 5, 50, 300])
    senders = draw.choice(["all", "all", draw.randrange(1, nodes + 1)])
    count = draw.choice([1, 1, draw.randrange(1, min(few, 8) + 1)])
    workload = draw.choice(
        [
            Window(count=count, stop_us=window_us, payload_bytes=payload_bytes, senders=senders),
            Window(
                count=count, stop_us=window_us, payload_bytes=payload_bytes, senders=senders, law="triangular"
            ),
            Poisson(interval_us=scale_us, count=count, payload_bytes=payload_bytes, senders=senders),
            Periodic(interval_us=2 * scale_us, count=count, payload_bytes=payload_bytes, senders=senders),
            Burst(size=count, interval_us=window_us, count=1, payload_bytes=payload_bytes, senders=senders),
        ]
    )
    workloads = [workload]
    if draw.random() < 0.2:  # a second one, with ties and other sizes
        workloads.append(Window(count=1, stop_us=window_us, payload_bytes=7, senders=1))
    return Scenario(
        nodes=nodes,
        protocol="vcube",
        seed=draw.randrange(2**63),
        params={
            "aggregate": draw.random() < 0.75,
            "tree": draw.choice(["source", "source", "single"]),
            "mtu_bytes": draw.choice([0, 150, 500, 1500]),
            "size_model": draw.choice(["wire", "paper"]),
        },
        topology=draw.choice([Full(), Hypercube(rooted=True)]),
        link=Link(
            delay=delay,
            service_us=draw.choice([0, 0, scale_us // 10, scale_us]),
            process_us=draw.choice([0, scale_us // 100]),
        ),
        workloads=workloads,
        stop=Stop(duration_us=max(60 * scale_us, 1)),
    )


class Watch:
    """What all cores of a run do, measured with dictionaries and lists, as the definitions say."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.sums: Counter[str] = Counter()
        self.largest: Counter[str] = Counter()
        self.by_messages: Counter[int] = Counter()
        self.by_bytes: Counter[int] = Counter()
        self.by_dependencies: Counter[int] = Counter()
        self.born_us: dict[tuple[str, int], int] = {}
        self.arrived_us: dict[tuple[str, str, int], int] = {}
        self.held_peaks: Counter[str] = Counter()
        self.messages_max: Counter[str] = Counter()
        self.free_us: Counter[str] = Counter()

    def make(self, me: NodeId, members: list[NodeId]) -> VCube:
        return _Watched(self, me, members, **self.scenario.params)

    def effects(self, core: VCube, effects: Effects, now_us: int) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                for _ in effect.to:
                    self._sent(core.me, effect.packet, now_us)
            elif isinstance(effect, Deliver) and effect.message.origin != core.me:
                key = (effect.message.origin, effect.message.number)
                self._took("delivery", now_us - self.born_us[key])
                self.sums["deliveries"] += 1
                held_us = now_us - self.arrived_us[core.me, *key]
                self.sums["delayed"] += held_us > 0
                self._took("held", held_us)
        self.held_peaks[core.me] = max(self.held_peaks[core.me], len(core.explain()))

    def _took(self, what: str, time_us: int) -> None:
        self.sums[f"{what}_us"] += time_us
        self.largest[f"{what}_max_us"] = max(self.largest[f"{what}_max_us"], time_us)

    def _sent(self, me: NodeId, packet: Packet, now_us: int) -> None:
        messages = packet[0]
        size = 20 + sum(map(paper_message_bytes, messages))
        self.sums["packets"] += 1
        self.sums["copies"] += len(messages)
        self.sums["packet_bytes"] += size
        self.by_messages[len(messages)] += 1
        self.by_bytes[min(size, BYTES_MAX)] += 1  # the measure's last place takes all that is larger
        self.messages_max[me] = max(self.messages_max[me], len(messages))
        if len(messages) > 1:
            self.sums["aggregated_packets"] += 1
            self.sums["aggregated_messages"] += len(messages)
        begin_us = max(now_us, self.free_us[me])
        self.free_us[me] = begin_us + self.scenario.link.service_us
        self._took("queued", begin_us - now_us if self.scenario.link.service_us else 0)

    def measures(self, result: Outcome) -> VCubeMeasures:
        names = list(self.scenario_names())
        histograms = {
            "packets_by_messages": _places(self.by_messages),
            "messages_by_dependencies": _places(self.by_dependencies),
            "packets_by_bytes": dict(sorted(self.by_bytes.items())),
        }
        counted = {
            name: self.sums[name] + self.largest[name]
            for name in VCubeMeasures.__struct_fields__
            if name not in histograms
        }
        return VCubeMeasures(
            **counted
            | histograms
            | {
                "nodes": len(names),
                "messages": result.broadcasts,
                "held_peaks": [self.held_peaks[name] for name in names],
                "messages_max": [self.messages_max[name] for name in names],
                "final_us": result.final_us,
            }
        )

    def scenario_names(self) -> list[NodeId]:
        from whence.sim.model import node_names

        return node_names(self.scenario.nodes)


class _Watched(VCube):
    def __init__(self, watch: Watch, me: NodeId, members: list[NodeId], **params: Any) -> None:
        super().__init__(me, members, **params)
        self.watcher = watch

    def broadcast(self, payload: bytes, now_us: int) -> Effects:
        effects = super().broadcast(payload, now_us)
        self.watcher.born_us[self.me, self.last] = now_us
        self.watcher.by_dependencies[len(self.sent_after) // 2] += 1
        self.watcher.effects(self, effects, now_us)
        return effects

    def receive(self, peer: NodeId, packet: Packet, now_us: int) -> Effects:
        for message in packet[0]:
            origin = self.members[message.origin]
            if origin != self.me:
                self.watcher.arrived_us[self.me, origin, message.number] = now_us
                self.watcher.sums["receptions"] += 1
                self.watcher._took("reception", now_us - self.watcher.born_us[origin, message.number])
        effects = super().receive(peer, packet, now_us)
        self.watcher.effects(self, effects, now_us)
        return effects

    def _send(self, to: list[NodeId], messages: Any, effects: Effects) -> None:
        if messages and messages[-1].origin == self.my_index:
            self.sent_after = messages[-1].after
        before = len(effects)
        super()._send(to, messages, effects)
        sent = sum(len(effect.to) for effect in effects[before:] if isinstance(effect, Send))
        self.watcher.sums["splits"] += sent - len(to) if messages else 0  # all are neighbours here


def _places(histogram: Counter[int]) -> list[int]:
    return trimmed([histogram[place] for place in range(max(histogram, default=0) + 1)])


def without_links(kept: KeptRows) -> list[Row]:
    """Every row but the links'."""
    return [row for row in kept.rows if row[2] is not Kind.LINK_UP]


def run_core(scenario: Scenario, *, check: bool = False) -> tuple[Outcome, list[Row], VCubeMeasures]:
    """The core in the simulator: its result, every row, and the measures."""
    kept, watch = KeptRows(), Watch(scenario)
    result = simulate(scenario, kept, make=watch.make, check=check)
    return result, without_links(kept), watch.measures(result)

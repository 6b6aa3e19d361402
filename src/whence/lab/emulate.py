"""Emulation: live nodes over real connections, whose meetings follow a scenario's contact plan.

Paper 001 ran DoDWAN on the emulator LEPTON; here the nodes are those of `whence.join`, many in one process,
each with its own listening socket. While the plan has a contact, the two nodes hold a TCP connection; when it
ends, the connection is closed. Time runs `speed` times as fast for the nodes, their timers and lifetimes.
What is broadcast, where and when is taken from the simulation of the same scenario, so that both can be set
side by side: receives (deliveries at other nodes than the origin), delays, and the verifier's judgement.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from whence.errors import ScenarioError
from whence.lab.run import run
from whence.live.group import Group
from whence.live.join import make_node
from whence.live.log import LogMembership
from whence.live.node import Node
from whence.live.settings import LogSettings, NodeSettings
from whence.protocols import registry
from whence.session.addresses import Address
from whence.session.limits import Limits
from whence.sim.files import checked, run_id
from whence.sim.links_planned import plan_of
from whence.sim.model import Scenario, node_names
from whence.trace.schema import Kind, Level, PromisesMade, Recorder
from whence.trace.writer import TraceWriter
from whence.verify.run import verify_trace

MEND_S = 0.05  # how often a contact without a connection is tried again
_LIMITS = Limits(heartbeat_s=60.0, silence_s=600.0, leave_timeout_s=0.5)
_UP, _DOWN, _SAY = range(3)
_PATIENCE = 200  # milliseconds for a connection to come up


class Said(NamedTuple):
    """A broadcast of the simulation."""

    at_us: int
    node: str
    payload_bytes: int
    lifetime_us: int | None


class Emulated(msgspec.Struct, frozen=True, kw_only=True):
    """An emulation beside the simulation of the same scenario."""

    run: str
    nodes: int
    speed: float
    contacts: int
    broadcasts: int
    simulated_receives: int
    emulated_receives: int
    difference: float  # of the receives, relative to the simulation
    simulated_delay_s: float  # from broadcast to receipt, on average
    emulated_delay_s: float
    connections: int
    lost_us: int  # of the plan's time, in which its clock was held because the machine was too slow
    violations: int
    ok: bool  # the verifier's judgement


class Tally:
    """A recorder that counts receives, and keeps what was broadcast."""

    def __init__(self, onward: Recorder | None = None) -> None:
        self.said: list[Said] = []
        self.receives = 0
        self.delay_us = 0
        self.links = 0  # each counts at both ends
        self._onward = onward
        self._began: dict[tuple[str, int], int] = {}

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
        """As `Recorder.event`."""
        if kind is Kind.BROADCAST:
            lifetime_us = None if detail is None else int(detail)
            self.said.append(Said(time_us, node, total_bytes, lifetime_us))
            self._began[origin or "", number] = time_us
        elif kind is Kind.LINK_UP:
            self.links += 1
        elif kind is Kind.DELIVER and not (origin or "").startswith(f"{node}/"):
            self.receives += 1
            self.delay_us += time_us - self._began.get((origin or "", number), time_us)
        if self._onward is not None:
            self._onward.event(node, time_us, kind, origin, number, peer, total_bytes, control_bytes, detail)

    @property
    def mean_delay_s(self) -> float:
        """From broadcast to receipt, on average."""
        return self.delay_us / self.receives / 1e6 if self.receives else 0.0


class PlanClock:
    """The time of a plan: it begins at 0, and runs `speed` times as fast as ours.

    It never runs past what the plan says next and has not happened yet: a machine that is too slow for the
    speed makes the emulation take longer, and not the contacts shorter.
    """

    def __init__(self, speed: float) -> None:
        self.speed = speed
        self.lost_us = 0  # by which it was held
        self._began_ns = time.monotonic_ns()
        self._next_us = 0

    def now_us(self) -> int:
        """The time now."""
        return min(self._free_us(), self._next_us)

    def _free_us(self) -> int:
        return int((time.monotonic_ns() - self._began_ns) * self.speed) // 1000

    def go_on_to(self, next_us: int) -> None:
        """All that the plan says up to now has happened; `next_us` is next."""
        late_us = self._free_us() - self._next_us
        if late_us > 0:
            self._began_ns += round(late_us * 1000 / self.speed)
            self.lost_us += late_us
        self._next_us = max(self._next_us, next_us)


class Emulation:
    """One run."""

    def __init__(self, scenario: Scenario, said: list[Said], speed: float) -> None:
        plan = plan_of(scenario)
        if plan is None or scenario.protocol != "log":
            raise ScenarioError(
                f"scenario {scenario.name!r}",
                "an emulation follows a contact plan, under protocol 'log'",
                "Set protocol = 'log' and a topology of kind 'contacts'",
            )
        self.plan = plan
        self.scenario = scenario
        self.names = node_names(scenario.nodes)
        self.speed = speed
        self.lost_us = 0
        self._said = said
        self._nodes: dict[str, Node] = {}
        self._groups: dict[str, Group] = {}
        self._addresses: dict[str, Address] = {}
        self._open: set[tuple[str, str]] = set()  # contacts that are under way

    async def go(self, recorder: Recorder, progress: Callable[[int], None]) -> None:
        """Run the whole plan."""
        addresses = _free_addresses(len(self.names))
        self._addresses = dict(zip(self.names, addresses, strict=True))
        clock = PlanClock(self.speed)
        params = registry.lookup("log").live_parameters(self.scenario.params)
        for name in self.names:
            settings = NodeSettings(
                group=self.scenario.name or "emulation",
                node=name,
                addresses={name: self._addresses[name]},
                listen=self._addresses[name],
                protocol="log",
                params={**params, "reads": True},
                limits=_LIMITS,
                clock=clock,
                log=LogSettings((), by_plan=True),
            )
            node = self._nodes[name] = make_node(settings)
            await node.listen()
            await node.start(recorder)
            self._groups[name] = Group(node, None)
        tasks = [asyncio.create_task(_read(group)) for group in self._groups.values()]
        tasks.append(asyncio.create_task(self._mend()))
        try:
            for at_us, _, what, fields in self._agenda():
                clock.go_on_to(at_us)
                while clock.now_us() < at_us:  # noqa: ASYNC110 - a clock has no event
                    await asyncio.sleep((at_us - clock.now_us()) / 1e6 / self.speed)
                await self._do(what, fields)
                progress(at_us)
            clock.go_on_to(self._end_us())
            await asyncio.sleep((self._end_us() - clock.now_us()) / 1e6 / self.speed)
            self.lost_us = clock.lost_us
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.gather(*(node.leave() for node in self._nodes.values()))

    def _end_us(self) -> int:
        return min(self.plan.stop_us, self.scenario.stop.duration_us)

    def _agenda(self) -> list[tuple[int, int, int, tuple[Any, ...]]]:
        number, end_us = count(), self._end_us()
        found: list[tuple[int, int, int, tuple[Any, ...]]] = []
        for a, b, start_us, stop_us in self.plan.contacts:
            if start_us < min(stop_us, end_us):
                pair = (self.names[a], self.names[b])
                found.append((start_us, next(number), _UP, pair))
                found.append((min(stop_us, end_us), next(number), _DOWN, pair))
        found += [(each.at_us, next(number), _SAY, tuple(each)) for each in self._said]
        return sorted(found)

    async def _do(self, what: int, fields: tuple[Any, ...]) -> None:
        if what == _UP:
            self._open.add(fields)
            self._meet(*fields)
            await self._met(*fields)
        elif what == _DOWN:
            self._open.discard(fields)
            for one, other in (fields, fields[::-1]):
                self._member(one).part_from(other)
        else:
            _, name, payload_bytes, lifetime_us = fields
            deadline_s = None if lifetime_us is None else lifetime_us / 1e6
            await self._groups[name].broadcast(bytes(payload_bytes), deadline=deadline_s)

    def _member(self, name: str) -> LogMembership:
        member = self._nodes[name].membership
        assert isinstance(member, LogMembership)
        return member

    def _meet(self, one: str, other: str) -> None:
        self._member(other).meet(one, None)
        self._member(one).meet(other, self._addresses[other])

    async def _met(self, one: str, other: str) -> None:
        """Let the connection come up before time goes on: a radio needs no handshake of TCP."""
        ends = (self._nodes[one].links, other), (self._nodes[other].links, one)
        for _ in range(_PATIENCE):
            if all(peer in links for links, peer in ends):
                return
            await asyncio.sleep(0.001)

    async def _mend(self) -> None:
        """A contact whose connection could not be made, or broke, is tried again while it lasts."""
        while True:
            await asyncio.sleep(MEND_S)
            for one, other in list(self._open):
                self._meet(one, other)


async def _read(group: Group) -> None:
    async for _ in group:
        pass


def _free_addresses(wanted: int) -> list[Address]:
    with ExitStack() as stack:
        found = []
        for _ in range(wanted):
            probe = stack.enter_context(socket.socket())
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", 0))
            found.append(Address("127.0.0.1", probe.getsockname()[1]))
        return found


def emulate(
    scenario: Scenario, folder: Path, speed: float, progress: Callable[[int], None] = lambda _: None
) -> Emulated:
    """Simulate a scenario, emulate it, judge the trace that is left in `folder`, and compare."""
    scenario = checked(scenario)
    simulated = Tally()
    run(scenario, recorder=simulated, level=Level.DELIVERIES, kernel="never")
    emulation = Emulation(scenario, simulated.said, speed)
    promised = registry.lookup("log").promises
    writer = TraceWriter(
        folder,
        run=run_id(scenario),
        writer="emulation",
        protocol="log",
        parameters={"host": "emulation", "speed": speed, "params": dict(scenario.params)},
        promises=PromisesMade(
            causal=promised.causal,
            fifo=promised.fifo,
            no_duplicates=promised.no_duplicates,
            complete=False,  # the plan decides who meets whom
            timely=promised.timely,
            clock_slack_us=round(speed * 5_000),  # steps of one process may be that far behind the clock
        ),
        seed=scenario.seed,
        nodes=emulation.names,
        level=Level.ALL,
    )
    with writer:
        emulated = Tally(writer)
        asyncio.run(emulation.go(emulated, progress))
    reports = list(verify_trace(folder))
    expected = simulated.receives
    return Emulated(
        run=run_id(scenario),
        nodes=scenario.nodes,
        speed=speed,
        contacts=len(emulation.plan.contacts),
        broadcasts=len(emulated.said),
        simulated_receives=expected,
        emulated_receives=emulated.receives,
        difference=(emulated.receives - expected) / expected if expected else 0.0,
        simulated_delay_s=round(simulated.mean_delay_s, 3),
        emulated_delay_s=round(emulated.mean_delay_s, 3),
        connections=emulated.links // 2,
        lost_us=emulation.lost_us,
        violations=sum(getattr(report.counts, kind) for report in reports for kind in report.broken),
        ok=all(report.ok for report in reports),
    )

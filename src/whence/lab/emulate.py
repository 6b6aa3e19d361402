"""Emulation: live nodes over real connections, whose meetings follow a scenario's contact plan.

Paper 001 ran DoDWAN on the emulator LEPTON; here the nodes are those of `whence.join`, spread over one or
more processes (`emulated.py`), each with its own listening socket. While the plan has a contact, the two
nodes hold a TCP connection; when it ends, the connection is closed. Time runs `speed` times as fast for the
nodes, their timers and lifetimes. What is broadcast, where and when is taken from the simulation of the same
scenario, so that both can be set side by side: receives (deliveries at other nodes than the origin), delays,
and the verifier's judgement.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from itertools import count, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from whence.errors import EmulationError, ScenarioError
from whence.lab.emulated import PlanClock, Troupe
from whence.lab.run import run
from whence.protocols import registry
from whence.session.addresses import Address
from whence.sim.files import checked, run_id
from whence.sim.links_planned import plan_of
from whence.sim.model import Scenario, node_names
from whence.trace.reader import open_trace
from whence.trace.schema import Kind, Level, PromisesMade
from whence.verify.run import verify_trace

_UP, _DOWN, _SAY = range(3)
_FOREVER_US = 1 << 60
START_S = 120.0  # for the processes to listen
AHEAD_S = 0.02  # of our time, for a process to say that it has heard how far the clock may run


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
    processes: int
    speed: float
    free: bool  # the plan's clock waited for nothing
    contacts: int
    broadcasts: int
    simulated_receives: int
    emulated_receives: int
    difference: float  # of the receives, relative to the simulation
    simulated_delay_s: float  # from broadcast to receipt, on average
    emulated_delay_s: float
    connections: int
    took_s: float  # of our time, for the plan alone
    lost_us: int  # of the plan's time, in which its clock was held because the machine was too slow
    late_us: int  # of the plan's time, by which the latest event was late
    violations: int
    ok: bool  # the verifier's judgement


class ReceiveTally:
    """A recorder that counts receives, and keeps what was broadcast."""

    def __init__(self) -> None:
        self.said: list[Said] = []
        self.received: dict[tuple[str, int], tuple[int, int]] = {}  # how often, and the sum of the times
        self.links = 0  # each counts at both ends
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
        """As `Recorder.event`; in any order of the nodes."""
        if kind is Kind.BROADCAST:
            lifetime_us = None if detail is None else int(detail)
            self.said.append(Said(time_us, node, total_bytes, lifetime_us))
            self._began[origin or "", number] = time_us
        elif kind is Kind.LINK_UP:
            self.links += 1
        elif kind is Kind.DELIVER and not (origin or "").startswith(f"{node}/"):
            times, sum_us = self.received.get((origin or "", number), (0, 0))
            self.received[origin or "", number] = (times + 1, sum_us + time_us)

    @property
    def receives(self) -> int:
        """Deliveries at other nodes than the origin."""
        return sum(times for times, _ in self.received.values())

    @property
    def mean_delay_s(self) -> float:
        """From broadcast to receipt, on average."""
        delay_us = sum(sum_us - times * self._began[id_] for id_, (times, sum_us) in self.received.items())
        return delay_us / self.receives / 1e6 if self.received else 0.0


class Worker:
    """The parent's end of a process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._number = 0
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting: dict[int, asyncio.Future[None]] = {0: self._ready}
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def start(cls, troupe: Troupe) -> Worker:
        """Start a process; `ready` waits until its nodes listen."""
        words = (sys.executable, "-m", "whence.lab.emulated", msgspec.json.encode(troupe).decode())
        pipe = asyncio.subprocess.PIPE
        return cls(await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe))

    async def ready(self) -> None:
        """Wait until all nodes of the process listen."""
        async with asyncio.timeout(START_S):
            await self._ready

    def order(self, *words: Any) -> asyncio.Future[None]:
        """Say something; the future is done when it is."""
        self._number += 1
        future = self._waiting[self._number] = asyncio.get_running_loop().create_future()
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode([self._number, *words]) + b"\n")
        return future

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            future = self._waiting.pop(int(line), None)
            if future is not None and not future.done():
                future.set_result(None)
        error = EmulationError("emulation", "a process of it has ended", "Its last words are above")
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)
                future.exception()  # some are waited for by no one

    async def end(self) -> None:
        """Let the nodes leave, and the process end; kill it if it does not."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(60):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        await self._listening


class Emulation:
    """One run."""

    def __init__(self, scenario: Scenario, said: list[Said], speed: float, *, free: bool = False) -> None:
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
        self.lost_us = self.late_us = 0
        self.took_s = 0.0
        self._free = free
        self._said = said
        self._clock = PlanClock(speed)
        self._addresses = dict(zip(self.names, _free_addresses(len(self.names)), strict=True))
        self._workers: list[Worker] = []
        self._place: dict[str, Worker] = {}
        # What one pair of nodes is told it is told in order, also where nothing waits for it.
        self._turns: dict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._telling: set[asyncio.Task[None]] = set()  # kept, or they could be collected

    async def go(self, folder: Path, processes: int, progress: Callable[[int], None]) -> None:
        """Run the whole plan."""
        try:
            for at in range(processes):
                mine = self.names[at::processes]
                worker = await Worker.start(self._troupe(folder, at, mine))
                self._workers.append(worker)
                self._place |= dict.fromkeys(mine, worker)
            await asyncio.gather(*(worker.ready() for worker in self._workers))
            began_s = time.monotonic()
            await self._follow(progress)
            self.took_s = time.monotonic() - began_s
        finally:
            await asyncio.gather(*(worker.end() for worker in self._workers))

    def _troupe(self, folder: Path, at: int, names: list[str]) -> Troupe:
        scenario, promised = self.scenario, registry.lookup("log").promises
        return Troupe(
            run=run_id(scenario),
            group=scenario.name or "emulation",
            writer=f"emulation-{at}",
            folder=str(folder),
            nodes={name: str(self._addresses[name]) for name in names},
            all_nodes=list(self.names),
            params=registry.lookup("log").live_parameters(scenario.params),
            manifest={"host": "emulation", "speed": self._clock.speed, "params": dict(scenario.params)},
            promises=PromisesMade(
                causal=promised.causal,
                fifo=promised.fifo,
                no_duplicates=promised.no_duplicates,
                complete=False,  # the plan decides who meets whom
                timely=promised.timely,
                clock_slack_us=round(self._clock.speed * 5_000),  # a step may be that far behind the clock
            ),
            seed=scenario.seed,
            speed=self._clock.speed,
        )

    async def _follow(self, progress: Callable[[int], None]) -> None:
        clock = self._clock
        clock.began_ns = time.monotonic_ns()
        for at_us, events in groupby(self._agenda(), key=itemgetter(0)):
            await self._wait_until(at_us)
            self.late_us = max(self.late_us, clock.free_us() - at_us)
            done = [future for event in events for future in self._do(*event[2:])]
            if not self._free:
                await asyncio.gather(*done)
            progress(at_us)
        await self._wait_until(self._end_us())
        await asyncio.gather(*self._telling)

    async def _wait_until(self, at_us: int) -> None:
        """All that the plan says up to now has happened; let its clock run on to `at_us`.

        It runs only a little ahead of the slowest process: what one that the machine lets wait would have
        said meanwhile would come after the end of a contact.
        """
        clock = self._clock
        ahead_us = round(AHEAD_S * 1e6 * clock.speed)
        while True:
            late_us = clock.free_us() - clock.next_us
            if late_us > 0 and not self._free:
                clock.began_ns += round(late_us * 1000 / clock.speed)
                self.lost_us += late_us
            clock.next_us = _FOREVER_US if self._free else min(at_us, clock.free_us() + 2 * ahead_us)
            told = [worker.order("clock", clock.began_ns, clock.next_us) for worker in self._workers]
            until_us = at_us if clock.next_us >= at_us else clock.next_us - ahead_us
            while (early_us := until_us - clock.free_us()) > 0:  # noqa: ASYNC110 - a clock has no event
                await asyncio.sleep(early_us / 1e6 / clock.speed)
            if not self._free:
                await asyncio.gather(*told)
            if until_us == at_us:
                return

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

    def _do(self, what: int, fields: tuple[Any, ...]) -> Iterable[asyncio.Future[None]]:
        """Tell the processes of an event; the futures are done when it has happened."""
        if what == _SAY:
            _, name, payload_bytes, lifetime_us = fields
            return [self._place[name].order("say", name, payload_bytes, lifetime_us)]
        telling = asyncio.create_task(self._meet(*fields) if what == _UP else self._part(*fields))
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)
        return [telling]

    async def _meet(self, one: str, other: str) -> None:
        """Whoever is called knows of the contact first: it would close a connection that has no contact."""
        async with self._turns[one, other]:
            await self._place[other].order("near", other, one)
            await self._place[one].order("near", one, other, str(self._addresses[other]))
            linked = [self._place[name].order("linked", name, peer) for name, peer in _both(one, other)]
        await asyncio.gather(*linked)

    async def _part(self, one: str, other: str) -> None:
        """Whoever calls parts first: it would call again if the other had closed the connection."""
        async with self._turns[one, other]:
            for name, peer in _both(one, other):
                await self._place[name].order("part", name, peer)


def _both(one: str, other: str) -> tuple[tuple[str, str], tuple[str, str]]:
    return (one, other), (other, one)


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
    scenario: Scenario,
    folder: Path,
    speed: float,
    progress: Callable[[int], None] = lambda _: None,
    *,
    processes: int = 1,
    free: bool = False,
) -> Emulated:
    """Simulate a scenario, emulate it, judge the trace that is left in `folder`, and compare.

    With `free` the plan's clock runs on whatever happens: what the machine is too slow for is lost then.
    """
    scenario = checked(scenario)
    simulated = ReceiveTally()
    run(scenario, recorder=simulated, level=Level.DELIVERIES, kernel="never")
    emulation = Emulation(scenario, simulated.said, speed, free=free)
    processes = min(processes, scenario.nodes)
    asyncio.run(emulation.go(folder, processes, progress))
    emulated = ReceiveTally()
    for event in open_trace(folder).events(run_id(scenario)):
        emulated.event(
            event.node, event.time_us, event.kind, event.origin, event.number, event.peer,
            event.total_bytes, event.control_bytes, event.detail,
        )  # fmt: skip
    reports = list(verify_trace(folder))
    expected, received = simulated.receives, emulated.receives
    return Emulated(
        run=run_id(scenario),
        nodes=scenario.nodes,
        processes=processes,
        speed=speed,
        free=free,
        contacts=len(emulation.plan.contacts),
        broadcasts=len(emulated.said),
        simulated_receives=expected,
        emulated_receives=received,
        difference=(received - expected) / expected if expected else 0.0,
        simulated_delay_s=round(simulated.mean_delay_s, 3),
        emulated_delay_s=round(emulated.mean_delay_s, 3),
        connections=emulated.links // 2,
        took_s=round(emulation.took_s, 3),
        lost_us=emulation.lost_us,
        late_us=emulation.late_us,
        violations=sum(getattr(report.counts, kind) for report in reports for kind in report.broken),
        ok=all(report.ok for report in reports),
    )

"""Workloads: when each sender broadcasts, and who replies to what."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count as counting
from typing import NamedTuple

from whence.core.rng import below, chance, purpose, stream
from whence.protocols import registry
from whence.sim.distributions import Draw, Exponential, sampler
from whence.sim.links_planned import plan_of
from whence.sim.model import (
    Anyone,
    Burst,
    Periodic,
    Poisson,
    Replies,
    Scenario,
    Window,
    Workload,
    node_names,
)
from whence.sim.selection import select

_TIMES = purpose("workload times")
_REPLY = purpose("workload reply")
_LIFETIME = purpose("workload lifetime")
_TO = purpose("workload destination")
_PAYLOAD = purpose("workload payload")
_STAY = purpose("workload stay")
SENDER = purpose("experiment source")  # of `anyone`: the word is part of every recorded run

ORIGIN = "origin"  # as the destination of a reply: whom it answers


class Lifetimes:
    """How long the messages of one sender in one workload are good; a draw is a function of their number."""

    __slots__ = ("_draw", "_key")

    def __init__(self, workload: Workload, key: int) -> None:
        lifetime = None if isinstance(workload, Anyone) else workload.lifetime
        self._draw: Draw | None = None if lifetime is None else sampler(lifetime)
        self._key = key

    def of(self, number: int) -> int | None:
        """The lifetime of the sender's broadcast of that number, from 0; None if it has none of its own."""
        return None if self._draw is None else max(1, self._draw(self._key, number))


class Destinations:
    """Whom the messages of one sender in one workload go to, one node each: the draws of point-to-point
    protocols."""

    __slots__ = ("_key", "_nodes", "_to_origin")

    def __init__(self, at: int, node: int, scenario: Scenario) -> None:
        workload, names = scenario.workloads[at], node_names(scenario.nodes)
        to = None if isinstance(workload, Anyone) else workload.to
        self._to_origin = to == ORIGIN
        chosen = select("all" if to in (None, ORIGIN) else to, names, f"workloads[{at}].to", scenario.seed)
        self._nodes = [other for other in chosen if other != node]
        self._key = stream(scenario.seed, _TO, at, node)

    def of(self, *entities: int) -> int:
        """The destination of a broadcast by its number, or of a reply by what it answers (origin, number)."""
        if self._to_origin:
            return entities[0]
        return self._nodes[below(stream(self._key, _TO, *entities), 0, len(self._nodes))]


class Payloads:
    """What the messages of one sender in one workload carry: zeros, of a fixed or of a drawn size."""

    __slots__ = ("_fixed", "_key", "_low_bytes", "_sizes")

    def __init__(self, workload: Workload, key: int) -> None:
        self._fixed = bytes(workload.payload_bytes)
        self._low_bytes = workload.payload_bytes
        high_bytes = workload.payload_max_bytes if isinstance(workload, Poisson) else None
        self._sizes = 1 if high_bytes is None else high_bytes - workload.payload_bytes + 1
        self._key = key

    def of(self, number: int) -> bytes:
        """The payload of the sender's broadcast of that number, from 0."""
        if self._sizes == 1:
            return self._fixed
        return bytes(self._low_bytes + below(self._key, number, self._sizes))


class Source(NamedTuple):
    """One sender's part of one workload (replies are not among them: others cause them)."""

    workload: int
    node: int
    times_us: Iterator[int]
    payloads: Payloads
    lifetimes: Lifetimes
    destinations: Destinations | None = None  # None: a message goes to everybody
    key: int | None = None  # if given, a member is drawn for each broadcast, and `node` means nothing

    def to(self, number: int) -> int | None:
        """The one destination of the sender's message of that number, from 0; None for everybody."""
        return None if self.destinations is None else self.destinations.of(number)


def sources(scenario: Scenario) -> list[Source]:
    """Everything that broadcasts by itself."""
    names = node_names(scenario.nodes)
    is_unicast = registry.lookup(scenario.protocol).point_to_point
    stays: list[list[tuple[int, int]]] = [[] for _ in names]
    plan = plan_of(scenario)
    for node, start_us, stop_us in () if plan is None else plan.presence:
        stays[node].append((start_us, stop_us))
    found = []
    for at, workload in enumerate(scenario.workloads):
        if isinstance(workload, Replies):
            continue
        if isinstance(workload, Anyone):
            times_us = broadcast_times(workload, 0, _end_us(workload, scenario))
            key = stream(scenario.seed, SENDER, at)
            found.append(Source(at, 0, times_us, Payloads(workload, 0), Lifetimes(workload, 0), None, key))
            continue
        for node in select(workload.senders, names, f"workloads[{at}].senders", scenario.seed):
            key = stream(scenario.seed, _TIMES, at, node)
            if isinstance(workload, Periodic) and workload.from_entry:
                times_us = _since_entry(workload, key, _end_us(workload, scenario), stays[node])
            else:
                times_us = broadcast_times(workload, key, _end_us(workload, scenario))
            lifetimes = Lifetimes(workload, stream(scenario.seed, _LIFETIME, at, node))
            payloads = Payloads(workload, stream(scenario.seed, _PAYLOAD, at, node))
            destinations = Destinations(at, node, scenario) if is_unicast else None
            found.append(Source(at, node, times_us, payloads, lifetimes, destinations))
    return found


def _end_us(workload: Workload, scenario: Scenario) -> int:
    duration_us = scenario.stop.duration_us
    return duration_us if workload.stop_us is None else min(workload.stop_us, duration_us)


def broadcast_times(workload: Workload, key: int, end_us: int) -> Iterator[int]:
    """When one sender broadcasts: ascending, all before `end_us`."""
    match workload:
        case Anyone(start_us=start, interval_us=interval):
            times_us = _evenly(start, interval)
        case Periodic():
            times_us = _periodic(workload, key)
        case Poisson():
            times_us = _poisson(workload, key)
        case Window():
            times_us = iter(sorted(_in_window(workload, key)))
        case Burst():
            times_us = _bursts(workload)
        case Replies():
            return
    for time_us in times_us:
        if time_us >= end_us:
            return
        yield time_us


def _since_entry(workload: Periodic, key: int, end_us: int, stays: list[tuple[int, int]]) -> Iterator[int]:
    """As `broadcast_times`, beginning again whenever the sender enters; `count` is per stay."""
    for enters_us, leaves_us in stays:
        for time_us in _periodic(workload, stream(key, _STAY, enters_us)):
            if enters_us + time_us >= min(leaves_us, end_us):
                break
            yield enters_us + time_us


def _numbers(count: int | None) -> Iterator[int]:
    return iter(counting() if count is None else range(count))


def _in_window(workload: Window, key: int) -> Iterator[int]:
    start_us, length_us = workload.start_us, workload.stop_us - workload.start_us
    for index in range(workload.count):
        if workload.law == "uniform":
            yield start_us + below(key, index, length_us)
        else:
            one, other = (below(key, 2 * index + at, length_us) for at in (0, 1))
            yield start_us + (one + other) // 2


def _evenly(start_us: int, interval_us: int) -> Iterator[int]:
    yield from counting(start_us, interval_us)


def _periodic(workload: Periodic, key: int) -> Iterator[int]:
    for index in _numbers(workload.count):
        time_us = workload.start_us + index * workload.interval_us
        yield time_us + (below(key, index, workload.jitter_us + 1) if workload.jitter_us else 0)


def _poisson(workload: Poisson, key: int) -> Iterator[int]:
    draw = sampler(Exponential(mean_us=workload.interval_us))
    time_us = workload.start_us
    for index in _numbers(workload.count):
        time_us += draw(key, index)
        yield time_us


def _bursts(workload: Burst) -> Iterator[int]:
    for index in _numbers(workload.count):
        start_us = workload.start_us + index * workload.interval_us
        for place in range(workload.size):
            yield start_us + place * workload.gap_us


class Reply(NamedTuple):
    """A reply that is to be broadcast."""

    time_us: int
    workload: int
    payload: bytes
    depth: int
    lifetime_us: int | None
    to: int | None  # None: everybody


class Responder:
    """One replies workload: decides, for each delivery, whether the deliverer answers."""

    def __init__(self, at: int, workload: Replies, scenario: Scenario) -> None:
        names = node_names(scenario.nodes)
        chosen = select(workload.senders, names, f"workloads[{at}].senders", scenario.seed)
        self.senders = set(chosen)
        self.at = at
        self.workload = workload
        self.seed = scenario.seed
        self.end_us = _end_us(workload, scenario)
        self.payload = bytes(workload.payload_bytes)
        self.made: dict[int, int] = dict.fromkeys(chosen, 0)
        self._draw: Draw = sampler(workload.delay)
        self._lifetimes = {
            node: Lifetimes(workload, stream(scenario.seed, _LIFETIME, at, node)) for node in chosen
        }
        self._destinations = (
            {node: Destinations(at, node, scenario) for node in chosen}
            if registry.lookup(scenario.protocol).point_to_point
            else {}
        )

    def reply(self, node: int, origin: int, number: int, depth: int, time_us: int) -> Reply | None:
        """The reply of `node` to message `number` of `origin`, itself a reply of `depth`; or None."""
        workload = self.workload
        if node == origin or node not in self.senders or depth >= workload.depth:
            return None
        if not workload.start_us <= time_us < self.end_us:
            return None
        if workload.count is not None and self.made[node] >= workload.count:
            return None
        key = stream(self.seed, _REPLY, self.at, node, origin, number)
        if not chance(key, 0, workload.probability):
            return None
        when_us = time_us + self._draw(key, 1)
        if when_us >= self.end_us:
            return None
        lifetime_us = self._lifetimes[node].of(self.made[node])
        self.made[node] += 1
        to = self._destinations[node].of(origin, number) if self._destinations else None
        return Reply(when_us, self.at, self.payload, depth + 1, lifetime_us, to)


def responders(scenario: Scenario) -> list[Responder]:
    """The replies workloads."""
    return [
        Responder(at, workload, scenario)
        for at, workload in enumerate(scenario.workloads)
        if isinstance(workload, Replies)
    ]

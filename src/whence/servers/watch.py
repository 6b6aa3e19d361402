"""What `whence top` shows: nodes, daemons and systems of servers, with rates between two looks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from whence.errors import WhenceError
from whence.servers.client import Client
from whence.servers.door import knock
from whence.servers.requests import Status
from whence.servers.system import read_system

COLUMNS = (
    "node",
    "group",
    "protocol",
    "members",
    "links",
    "sent/s",
    "delivered/s",
    "unread",
    "held",
    "lag",
    "state",
)


class NodeLook(NamedTuple):
    """One node at one moment."""

    name: str
    group: str
    state: str  # "up", or why it cannot be asked
    protocol: str = ""
    members: int = 0
    links: tuple[tuple[str, str, int], ...] = ()  # peer, state, unacknowledged
    sent: int = 0
    delivered: int = 0
    unread: int = 0
    held: int = 0
    waiting: tuple[str, ...] = ()  # what waits for what
    events: tuple[str, ...] = ()

    @property
    def connected(self) -> int:
        """Links that are up."""
        return sum(state == "connected" for _, state, _ in self.links)

    @property
    def lag(self) -> int:
        """Messages that peers have not acknowledged."""
        return sum(unacknowledged for _, _, unacknowledged in self.links)


class NodeRates(NamedTuple):
    """A node with its rates since the look before."""

    seen: NodeLook
    sent_per_s: float | None
    delivered_per_s: float | None


Look = Callable[[], Sequence[NodeLook]]


def look_at(targets: Iterable[Path]) -> Look:
    """How to look at what is named: doors and sockets of daemons, and descriptions of systems (TOML)."""
    looks = [_of_system(target) if target.suffix == ".toml" else _of_door(target) for target in targets]
    return lambda: [seen for look in looks for seen in look()]


def rows(now: Sequence[NodeLook], before: Sequence[NodeLook], passed_s: float) -> list[NodeRates]:
    """What is seen now, with what has happened since."""
    earlier = {(seen.group, seen.name): seen for seen in before if seen.state == "up"}

    def rate(seen: NodeLook, field: str) -> float | None:
        last = earlier.get((seen.group, seen.name))
        if last is None or seen.state != "up" or passed_s <= 0 or getattr(seen, field) < getattr(last, field):
            return None  # it has just come, or come back
        return float(getattr(seen, field) - getattr(last, field)) / passed_s

    return [NodeRates(seen, rate(seen, "sent"), rate(seen, "delivered")) for seen in now]


def cells(row: NodeRates) -> tuple[str, ...]:
    """One node as text, column by column."""
    seen = row.seen
    links = f"{seen.connected}/{len(seen.links)}"
    rates = ["-" if rate is None else f"{rate:,.0f}" for rate in (row.sent_per_s, row.delivered_per_s)]
    numbers = [f"{number:,}" for number in (seen.unread, seen.held, seen.lag)]
    return (seen.name, seen.group, seen.protocol, str(seen.members), links, *rates, *numbers, seen.state)


def _of_door(path: Path) -> Look:
    def look() -> Sequence[NodeLook]:
        try:
            return [_from_door(knock(path, op="status"))]
        except WhenceError as error:
            return [NodeLook(path.name, "", error.reason)]

    return look


def _from_door(told: dict[str, Any]) -> NodeLook:
    stats = told["stats"]
    return NodeLook(
        name=told["node"],
        group=told["group"],
        state="up",
        protocol=told["protocol"],
        members=len(told["members"]),
        links=tuple(
            (peer, link["state"], link["unacknowledged_messages"]) for peer, link in stats["links"].items()
        ),
        sent=stats["broadcasts"],
        delivered=stats["deliveries"],
        unread=stats["unread_messages"],
        held=stats["held_messages"],
        waiting=tuple(f"{each['id']} waits for {', '.join(each['missing'])}" for each in told["waiting"]),
        events=tuple(map(_event, told["events"])),
    )


def _event(told: dict[str, Any]) -> str:
    """An event in words; its peer is named once."""
    peer, detail = told["peer"] or "", told["detail"]
    return f"{told['kind']}: {detail if peer in detail else f'{peer} {detail}'}"


def _of_system(path: Path) -> Look:
    system = read_system(path)

    def look() -> Sequence[NodeLook]:
        found = []
        for server in system.servers:
            try:
                with Client(system, server, timeout_s=2.0) as client:
                    found.append(_from_server(system.name, len(system.servers), client.status()))
            except WhenceError as error:
                found.append(NodeLook(server, system.name, error.reason))
        return found

    return look


def _from_server(system: str, servers: int, status: Status) -> NodeLook:
    return NodeLook(
        name=status.server,
        group=system,
        state="up",
        protocol="domains" if status.routes else "matrix",
        members=servers,
        links=tuple((peer, link.state, link.unacknowledged_messages) for peer, link in status.links.items()),
        sent=status.sent,
        delivered=status.delivered,
        unread=status.queue_in,
        held=status.held,
        waiting=tuple(str(each) for each in status.held_first),
        events=tuple(f"{count} x {problem}" for problem, count in status.problems.items()),
    )

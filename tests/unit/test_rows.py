"""Rows: the one place that makes trace rows; both hosts' ways to it give the same rows."""

from __future__ import annotations

from typing import Any

import pytest

from support.simulating import KeptRows
from whence.core.effects import (
    CancelTimer,
    CloseLink,
    CountOn,
    Deliver,
    Discard,
    Effects,
    Expire,
    Reason,
    Send,
    SetTimer,
)
from whence.core.message import Message, MessageId, NodeId, Packet
from whence.protocols import registry
from whence.sim.driver import Driver
from whence.trace.rows import About, Rows, held
from whence.trace.schema import Kind, Level

NAMES = ["n0", "n1", "n2"]


class Nowhere:
    """A host of the simulator's driver that carries out nothing."""

    def send(
        self, node: int, to: tuple[NodeId, ...], packet: Packet, time_us: int, about: About | None
    ) -> None: ...

    def delivered(self, node: int, message: Message, time_us: int) -> None: ...

    def set_timer(self, node: int, key: str, at_us: int) -> None: ...

    def cancel_timer(self, node: int, key: str) -> None: ...

    def stop(self, node: int, time_us: int) -> None: ...

    def close_link(self, node: int, peer: NodeId, time_us: int) -> None: ...


def a_core() -> Any:
    return registry.make("reliable", "n0", NAMES, {})


def a_packet() -> Packet:
    effects = registry.make("reliable", "n1", NAMES, {})
    effects.link_up("n0", 0)
    [send] = [effect for effect in effects.broadcast(b"four", 0) if isinstance(effect, Send)]
    return send.packet


def every_effect() -> Effects:
    return [
        CloseLink("n2"),
        Send(("n1", "n2"), a_packet()),
        Discard(MessageId("n1", 1), "n2", Reason.DUPLICATE),
        SetTimer("later", 9),
        Deliver(Message("n1", 1, b"four")),
        Discard(None, "n1", Reason.MALFORMED),
        Expire(MessageId("n2", 7), Reason.OVERTAKEN),
        CancelTimer("later"),
        CountOn("n1", False),
    ]


def test_a_step_has_one_row_per_effect_in_order_and_closed_links_behind() -> None:
    kept = KeptRows()
    Rows(a_core(), kept).effects(every_effect(), 5)
    about = tuple(a_core().sizes(a_packet()))
    assert kept.rows == [
        ("n0", 5, Kind.SEND, "n1", 1, "n1", *about, None),
        ("n0", 5, Kind.SEND, "n1", 1, "n2", *about, None),
        ("n0", 5, Kind.DISCARD, "n1", 1, "n2", 0, 0, "duplicate"),
        ("n0", 5, Kind.DELIVER, "n1", 1, None, 4, 0, None),
        ("n0", 5, Kind.DISCARD, None, 0, "n1", 0, 0, "malformed"),
        ("n0", 5, Kind.EXPIRE, "n2", 7, None, 0, 0, "overtaken"),
        ("n0", 5, Kind.LINK_DOWN, None, 0, "n2", 0, 0, None),
    ]


@pytest.mark.parametrize("level", list(Level))
def test_the_simulators_driver_writes_what_a_live_host_writes(
    level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = a_core()
    monkeypatch.setattr(core, "receive", lambda peer, packet, now_us: every_effect())
    simulated, live = KeptRows(), KeptRows()
    Driver(0, core, Nowhere(), recorder=simulated, level=level).receive("n1", a_packet(), 5)
    rows = Rows(core, live, level)
    if rows.all:
        rows.received("n1", rows.about(a_packet()), 5)
    rows.effects(core.receive("n1", a_packet(), 5), 5)
    assert simulated.rows == live.rows
    kinds = {
        Level.MEASURES: set(),
        Level.DELIVERIES: {Kind.DELIVER, Kind.EXPIRE},
        Level.ALL: {Kind.RECEIVE, Kind.SEND, Kind.DISCARD, Kind.DELIVER, Kind.EXPIRE, Kind.LINK_DOWN},
    }
    assert set(live.kinds()) == kinds[level]


def test_rows_of_inputs() -> None:
    kept, core = KeptRows(), registry.make("odca", "n0", NAMES, {"lifetime_us": 1_000})
    rows = Rows(core, kept)
    core.broadcast_within(b"four", 250, 1)
    rows.broadcast(None, 4, 1)
    rows.link(Kind.LINK_UP, "n1", 2)
    rows.timer("later", 3)
    rows.command("open", ("n0", "n1", "n2"), 4)
    rows.crashed(5)
    rows.restarted(6)
    rows.gauge("joined", 1, 7)
    assert kept.rows == [
        ("n0", 1, Kind.BROADCAST, "n0", 1, None, 4, 0, "250"),
        ("n0", 2, Kind.LINK_UP, None, 0, "n1", 0, 0, None),
        ("n0", 3, Kind.TIMER, None, 0, None, 0, 0, "later"),
        ("n0", 4, Kind.COMMAND, None, 0, None, 0, 0, '["open","n0","n1","n2"]'),
        ("n0", 5, Kind.CRASH, None, 0, None, 0, 0, None),
        ("n0", 6, Kind.RESTART, None, 0, None, 0, 0, None),
        ("n0", 7, Kind.SAMPLE, None, 1, None, 0, 0, "joined"),
    ]


def test_a_message_to_one_node_names_it() -> None:
    kept, core = KeptRows(), registry.make("matrix", "n0", NAMES, {})
    core.send("n2", b"four", 1)
    Rows(core, kept).broadcast("n2", 4, 1)
    assert kept.rows == [("n0", 1, Kind.BROADCAST, "n0", 1, "n2", 4, 0, None)]


@pytest.mark.parametrize("protocol", ["vector", "matrix"])
def test_held_is_what_waits(protocol: str) -> None:
    one, two = (registry.make(protocol, name, NAMES, {}) for name in ("n0", "n1"))
    for core in (one, two):
        for peer in NAMES:
            if peer != core.me:
                core.link_up(peer, 0)
    kept, packets = KeptRows(), []
    for number in range(3):
        effects = two.send("n0", b"", number) if protocol == "matrix" else two.broadcast(b"", number)
        packets += [effect.packet for effect in effects if isinstance(effect, Send)]
    for packet in packets[1:]:
        one.receive("n1", packet, 5)
    Rows(one, kept).sample(6)
    assert held(one) == len(one.explain()) == 2
    assert [row[2:5] + row[8:] for row in kept.rows] == [
        (Kind.SAMPLE, None, one.entries(), "entries"),
        (Kind.SAMPLE, None, 2, "held"),
    ]


def test_without_a_recorder_no_row_is_wanted() -> None:
    rows = Rows(a_core(), None)
    assert (rows.any, rows.deliveries, rows.all) == (False, False, False)
    assert rows.about(a_packet()).origin == "n1"

"""When a node itself fails: its users are told why, nobody hangs, and the others go on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import whence
from support.living import eventually, live_group, take
from whence.core.effects import CancelTimer, Reason, Send, SetTimer
from whence.core.message import NodeId, Packet
from whence.errors import GroupClosedError, InvariantError, TraceError
from whence.live.waiting import CoreTimers, WallClock
from whence.protocols import registry
from whence.protocols.baselines.fifo import Fifo, FifoPacket
from whence.protocols.deadline.wire import SOLICITATION, DeadlineMessage, DeadlinePacket, broadcast_packet
from whence.session.host import Host
from whence.session.links import Link
from whence.trace.writer import TraceWriter


def test_a_bug_in_a_core_ends_the_group_and_not_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with live_group("alice", "bob", "carol") as [alice, bob, carol]:

            def broken(peer: NodeId, packets: list[Packet], now_us: int) -> Any:
                raise InvariantError("vector at bob", "two and two are five")

            bob._node.host.core.receive_many = broken
            waiting = asyncio.create_task(bob.receive())
            await asyncio.sleep(0)
            await alice.broadcast(b"provoke")
            with pytest.raises(GroupClosedError, match="two and two are five"):
                await asyncio.wait_for(waiting, 10)
            with pytest.raises(GroupClosedError):
                await bob.broadcast(b"x")
            with pytest.raises(GroupClosedError):
                async for _ in bob:
                    pass
            assert (await take(carol, 1))[0].payload == b"provoke"
            for group in (alice, carol):  # what bob refused to take must not hold the others up at the end
                group._node.limits = whence.Limits(leave_timeout_s=0.2)

    with caplog.at_level("ERROR", logger="whence.live"):
        asyncio.run(main())
    assert any(record.exc_info for record in caplog.records)  # a bug is shown with its traceback


def test_a_trace_that_cannot_be_written_ends_the_group_without_a_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_full = False
    event = TraceWriter.event

    def write(self: TraceWriter, *values: Any, **named: Any) -> None:
        if is_full:
            raise TraceError(str(tmp_path), "the trace cannot be written (No space left)", "Make room")
        event(self, *values, **named)

    monkeypatch.setattr(TraceWriter, "event", write)

    async def main() -> None:
        nonlocal is_full
        async with live_group("alice", trace=tmp_path) as [alice]:
            await alice.broadcast(b"fine")
            is_full = True
            with pytest.raises(TraceError, match="No space left"):
                await alice.broadcast(b"not recorded, so not sent")
            assert (await take(alice, 1))[0].payload == b"fine"
            with pytest.raises(GroupClosedError, match="No space left"):
                await alice.receive()

    with caplog.at_level("ERROR", logger="whence.live"):
        asyncio.run(main())
    assert caplog.records
    assert not any(record.exc_info for record in caplog.records)


def test_leaving_twice_at_once_is_one_leaving(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_group("alice", "bob", trace=tmp_path) as [alice, bob]:
            for _ in range(500):
                await alice.broadcast(b"x")
            impatient = asyncio.create_task(alice.leave())
            await asyncio.sleep(0)
            impatient.cancel()  # whoever gives up waiting does not break it off
            await asyncio.gather(alice.leave(), alice.leave())
            assert len(await take(bob, 500)) == 500
            assert bob.stats().links["alice"].state == "left"

    asyncio.run(main())


class Ticking(Fifo):
    """A core that uses what the baselines do not: timers."""

    def __init__(self) -> None:
        super().__init__("a", ["a", "b"])
        self.ticks: list[tuple[str, int]] = []
        self.due_us: dict[str, int] = {}

    def broadcast(self, payload: bytes, now_us: int) -> Any:
        if payload == b"cancel":
            return [CancelTimer("late")]
        self.due_us = {"soon": now_us + 20_000, "late": now_us + 60_000}
        return [SetTimer("soon", now_us + 10), *(SetTimer(key, at) for key, at in self.due_us.items())]

    def timer(self, key: str, now_us: int) -> Any:
        self.ticks.append((key, now_us))
        return [Send(("b",), FifoPacket(0, 1, b"tick"))]


class NoTimers(dict[str, int]):
    """Timers that are set, and never expire."""

    def set(self, key: str, at_us: int) -> None:
        self[key] = at_us

    def cancel(self, key: str) -> None:
        self.pop(key, None)


def host_of(core: Any, links: dict[str, Link], timers: Any = None) -> Host:
    owner: Any = SimpleNamespace()  # these cores ask nothing of their node
    return Host(core, links, NoTimers() if timers is None else timers, owner, lambda: 0)


def test_timers_come_due_once_not_early_and_can_be_replaced_and_cancelled() -> None:
    async def main() -> None:
        async with live_group("a", "b") as [a, b]:
            core = Ticking()
            clock = WallClock()
            timers = CoreTimers(clock.now_us, lambda key: host.timer(key))  # noqa: PLW0108 - no host yet
            host = Host(core, a._node.links, timers, a._node, clock.now_us)
            host.broadcast(b"start")
            await eventually(lambda: bool(core.ticks))
            [(key, at_us)] = core.ticks
            assert key == "soon"
            assert at_us >= core.due_us["soon"]  # the first setting, 10 us later, was replaced
            host.broadcast(b"cancel")
            await asyncio.sleep(0.1)
            assert len(core.ticks) == 1
            host.broadcast(b"again")
            timers.close()
            await asyncio.sleep(0.05)
            assert len(core.ticks) == 1
            await b.leave()

    asyncio.run(main())


def test_what_is_held_is_what_the_core_says() -> None:
    host = host_of(Fifo("a", ["a", "b"], relay=False), {})
    host.link_up("b")
    host.receive("b", [FifoPacket(1, 2, b"early"), FifoPacket(1, 4, b"earlier still")])
    assert (host.held, host.deliveries) == (2, 0)
    host.receive("b", [FifoPacket(7, 1, b"bad"), FifoPacket(1, 1, b"first")])
    assert (host.held, host.deliveries) == (1, 2)
    assert host.discards[Reason.UNKNOWN_ORIGIN] == 1
    host.receive("b", [FifoPacket(1, 3, b"third")])
    assert (host.held, host.deliveries) == (0, 4)


def test_a_control_packet_whose_arrival_ends_a_wait_is_not_counted_as_held() -> None:
    """A solicitation comes when the time of a waiting message has come: nothing waits any more."""

    async def main() -> None:
        out = SimpleNamespace(pending=[], append_mark=lambda _: None)
        links: Any = {"b": SimpleNamespace(out=out)}
        core = registry.make("odca", "a", ["a", "b"], {"margin_us": 0})
        host = host_of(core, links)
        host.link_up("b", 1)
        second = DeadlineMessage(1, 2, 900, 5_000, (0, 1), (0, 0), b"second")
        host.receive("b", [broadcast_packet(second)], 1_000)
        assert (host.held, host.deliveries) == (1, 0)  # it waits for the first one
        host.receive("b", [DeadlinePacket(SOLICITATION, (), (), (), (0, 1))], 5_000)
        assert (host.held, host.deliveries) == (0, 1)

    asyncio.run(main())

"""Lifetimes in the API: deadlines, outcomes, and what they leave in the trace."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import whence
from support.living import eventually, in_its_life, live_group, take
from whence.errors import MisuseError, ParameterError
from whence.trace.reader import Event, open_trace
from whence.trace.schema import Kind
from whence.verify.run import verify_trace

# Every datagram arrives long after the shorter of the deadlines below.
HELD_BACK = whence.LinkFaults(reorder=1.0, reorder_s=0.3)
SHORT_S, LONG_S = 0.1, 20.0


async def outcomes(group: whence.Group, count: int) -> list[whence.Message | whence.Expired]:
    found: list[whence.Message | whence.Expired] = []
    async with asyncio.timeout(20):
        async for outcome in group.outcomes():
            found.append(outcome)
            if len(found) == count:
                break
    return found


def rows(trace: Path, kind: Kind) -> list[Event]:
    return [event for event in open_trace(trace).events() if event.kind is kind]


def test_what_comes_too_late_is_an_outcome_with_its_reason(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_group("a", "b", protocol="odca", faults=HELD_BACK, trace=tmp_path) as [a, b]:
            reading = asyncio.create_task(outcomes(b, 2))
            await asyncio.sleep(0)  # it asks for outcomes before anything comes
            stale = await a.broadcast(b"stale", deadline=SHORT_S)
            await a.broadcast(b"fresh", deadline=LONG_S)
            late, fresh = await reading
            assert late == whence.Expired("a", stale.number, b"", "expired")
            assert late.id == stale
            assert fresh == whence.Message("a", stale.number + 1, b"fresh")
            assert [each.payload for each in await take(a, 2)] == [b"stale", b"fresh"]  # in time at home
            # Each message leaves twice, and a further copy of an expired one is no second outcome.
            await eventually(lambda: b.stats().discards.get("duplicate") == 2)
            stats = b.stats()
            assert (stats.expiries, stats.deliveries, stats.held_messages) == ({"expired": 1}, 1, 0)
            assert (stats.unread_messages, stats.unread_bytes) == (0, 0)

    asyncio.run(main())
    [broadcast, _] = rows(tmp_path, Kind.BROADCAST)
    assert broadcast.detail == "100000"
    [expiry] = rows(tmp_path, Kind.EXPIRE)
    assert (expiry.node, expiry.origin, expiry.detail) == ("b", "a", "expired")
    assert in_its_life(expiry.number) == 1
    [report] = verify_trace(tmp_path, complete=True)
    assert report.promises.timely
    assert report.promises.clock_slack_us == 5_000
    assert report.ok, report
    assert (report.deliveries, report.expiries) == (3, 1)


def test_who_does_not_ask_for_outcomes_sees_messages_only() -> None:
    async def main() -> None:
        async with live_group("a", "b", protocol="odca", faults=HELD_BACK) as [a, b]:
            await a.broadcast(b"stale", deadline=SHORT_S)
            await a.broadcast(b"fresh", deadline=LONG_S)
            assert [each.payload for each in await take(b, 1)] == [b"fresh"]
            assert b.unread == 0
            assert b.stats().expiries == {"expired": 1}
            # Both ways of reading may be mixed: from here on outcomes are kept, and iteration skips them.
            asking = asyncio.create_task(outcomes(b, 1))
            await asyncio.sleep(0)
            again = await a.broadcast(b"stale again", deadline=SHORT_S)
            assert (await asking)[0] == whence.Expired("a", again.number, b"", "expired")
            await a.broadcast(b"stale once more", deadline=SHORT_S)
            await a.broadcast(b"good", deadline=LONG_S)
            assert [each.payload for each in await take(b, 1)] == [b"good"]

    asyncio.run(main())


def test_outcomes_end_with_the_group() -> None:
    async def main() -> None:
        async with live_group("a", "b", protocol="odca") as [a, b]:
            asking = asyncio.create_task(outcomes(b, 2))
            await a.broadcast(b"last", deadline=LONG_S)
            await eventually(lambda: b.stats().deliveries == 1)
            await b.leave()
            [last] = await asking
            assert (last.origin, in_its_life(last.number), last.payload) == ("a", 1, b"last")

    asyncio.run(main())


def test_without_a_deadline_the_protocols_own_lifetime_counts(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_group("a", protocol="tdca", lifetime_us=70_000, trace=tmp_path) as [a]:
            await a.broadcast(b"x")

    asyncio.run(main())
    assert [row.detail for row in rows(tmp_path, Kind.BROADCAST)] == ["70000"]


@pytest.mark.parametrize("deadline", [0, -1, True, "soon", float("nan"), float("inf"), 1e10])
def test_a_deadline_is_a_number_of_seconds(deadline: object) -> None:
    async def main() -> None:
        async with live_group("a", protocol="odca") as [a]:
            with pytest.raises(ParameterError, match="deadline"):
                await a.broadcast(b"x", deadline=deadline)  # type: ignore[arg-type]  # that is the test
            sent = await a.broadcast(b"x", deadline=1)
            assert (sent.origin, in_its_life(sent.number)) == ("a", 1)  # nothing has happened before

    asyncio.run(main())


def test_a_protocol_without_lifetimes_refuses_a_deadline() -> None:
    async def main() -> None:
        async with live_group("a", protocol="vector") as [a]:
            with pytest.raises(MisuseError, match="delivers everything, however late"):
                await a.broadcast(b"x", deadline=1.0)
            sent = await a.broadcast(b"x")
            assert (sent.origin, in_its_life(sent.number)) == ("a", 1)
            assert a.stats().broadcasts == 1

    asyncio.run(main())


def test_deadlines_over_reliable_links(tmp_path: Path) -> None:
    """The same protocol over TCP: nothing is lost, and a deadline still ends what comes late."""

    async def main() -> None:
        async with live_group("a", "b", protocol="odca", transport="tcp", trace=tmp_path) as [a, b]:
            for number in range(20):
                await a.broadcast(b"%d" % number, deadline=LONG_S)
            assert [in_its_life(each.number) for each in await take(b, 20)] == list(range(1, 21))

    asyncio.run(main())
    [report] = verify_trace(tmp_path, complete=True)
    assert report.ok, report

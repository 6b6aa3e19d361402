"""A live group whose messages say what they followed."""

from __future__ import annotations

import asyncio

import pytest

import whence
from support.living import free_ports, live_group, quick_limits
from whence.core.partial_order import Relation
from whence.errors import PayloadTooLargeError


async def read(ordered: whence.Ordered, count: int) -> list[tuple[bytes, set[tuple[str, int]]]]:
    found = []
    async with asyncio.timeout(30):
        async for message, after in ordered:
            assert after is not None
            found.append((message.payload, set(after)))
            if len(found) == count:
                break
    return found


def test_concurrent_messages_of_a_prc_group_are_told_from_those_that_follow() -> None:
    async def main() -> None:
        one, two = (f"127.0.0.1:{port}" for port in free_ports(2))
        options = {"protocol": "prc", "limits": quick_limits()}
        async with (
            whence.join("room", node="a", listen=one, **options) as a,
            whence.join("room", node="b", listen=two, contact=one, **options) as b,
        ):
            ordered_a, ordered_b = whence.Ordered(a), whence.Ordered(b)
            first = await ordered_a.broadcast(b"question")
            assert await read(ordered_b, 1) == [(b"question", set())]
            answer = await ordered_b.broadcast(b"answer")
            aside = await ordered_a.broadcast(b"aside")  # a has not read the answer
            here = await read(ordered_a, 3)
            assert dict(here) == {b"question": set(), b"answer": {first}, b"aside": {first}}
            last = await ordered_a.broadcast(b"last")
            assert dict(await read(ordered_b, 3)) == {
                b"answer": {first},
                b"aside": {first},
                b"last": {aside, answer},
            }
            assert ordered_b.relation(first, last) is Relation.BEFORE
            assert ordered_b.relation(answer, aside) is Relation.CONCURRENT
            assert ordered_b.relation(last, answer) is Relation.AFTER

    asyncio.run(main())


def test_a_member_without_it_says_nothing_and_a_refused_broadcast_costs_no_name() -> None:
    async def main() -> None:
        async with live_group("a", "b", protocol="vector", limits=quick_limits(max_payload_bytes=64)) as [
            a,
            b,
        ]:
            ordered = whence.Ordered(b)
            sent = await a.broadcast(b"plain")
            async with asyncio.timeout(20):
                assert await anext(ordered) == (whence.Message("a", 1, b"plain"), None)
            with pytest.raises(PayloadTooLargeError):
                await ordered.broadcast(bytes(64))
            await ordered.broadcast(b"")
            async with asyncio.timeout(20):
                _, after = await anext(ordered)
            assert after == {sent}

    asyncio.run(main())

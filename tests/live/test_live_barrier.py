"""`protocol="barrier"` on TCP: lifetimes, outcomes, members that start late; in one process and several."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import whence
from support.living import Proxy, eventually, free_ports, live_group, loopback, quick_limits, take
from whence.core.effects import Reason
from whence.core.message import Expired
from whence.errors import ParameterError
from whence.sim.replay import replay
from whence.trace.reader import open_trace
from whence.trace.schema import Kind
from whence.verify.run import verify_trace

Outcome = whence.Message | Expired


def test_a_conversation_in_causal_order_with_a_lifetime_for_all() -> None:
    async def main() -> None:
        async with live_group("a", "b", "c", protocol="barrier", lifetime=60) as (a, b, c):
            for at in range(20):
                await (a, b, c)[at % 3].broadcast(str(at).encode())
                for group in (a, b, c):
                    [message] = await take(group, 1)
                    assert message.payload == str(at).encode()

    asyncio.run(main())


def test_a_late_starter_gets_what_waits_for_it_and_is_spared_what_has_died() -> None:
    async def main() -> None:
        peers = loopback("abc")
        options = {"peers": peers, "protocol": "barrier", "limits": quick_limits()}
        async with AsyncExitStack() as stack:
            a, b = [await stack.enter_async_context(whence.join("room", node=n, **options)) for n in "ab"]
            moment = await a.broadcast(b"for a moment", deadline=1.5)
            await take(b, 1)
            await b.broadcast(b"for ever")  # it depends on the first
            await take(a, 2)
            await asyncio.sleep(1.7)
            c = await stack.enter_async_context(whence.join("room", node="c", **options))
            outcomes = c.outcomes()
            async with asyncio.timeout(20):
                ended = {type(each): each async for each in _first(outcomes, 2)}
            assert ended[whence.Message].payload == b"for ever"
            assert ended[Expired] == Expired("a", moment.number, b"", "expired")  # it came, and too late
            await eventually(lambda: c.stats().discards.get(Reason.EXPIRED, 0) == 1)  # B's copy of it
            assert c.stats().expiries == {Reason.EXPIRED: 1}
            await c.broadcast(b"thanks")
            assert [each.payload for each in await take(a, 1)] == [b"thanks"]
            assert c.explain() == []
            await asyncio.gather(a.leave(), b.leave(), c.leave())

    asyncio.run(main())


def test_a_late_starter_between_lifetimes_keeps_the_order_of_what_it_follows() -> None:
    """Case R9 of docs/barrier.md on real nodes: D hears C, and for a while not A, whose first message lasts.

    A listed member that starts late takes over no past: A has kept the first message for C.
    """

    async def main() -> None:
        peers = loopback("acd")
        proxy = Proxy(int(peers["d"].rpartition(":")[2]))
        proxy.open = False
        await proxy.start()
        options = {"peers": peers, "protocol": "barrier", "limits": quick_limits(), "relay": False}
        past_proxy = {**options, "peers": {**peers, "d": f"127.0.0.1:{proxy.port}"}}
        async with AsyncExitStack() as stack:
            a = await stack.enter_async_context(whence.join("room", node="a", **past_proxy))
            d = await stack.enter_async_context(whence.join("room", node="d", **options))
            first = await a.broadcast(b"for long", deadline=100)
            c = await stack.enter_async_context(whence.join("room", node="c", **options))
            assert [each.id for each in await take(c, 1)] == [first]
            second = await a.broadcast(b"for a moment", deadline=2.0)
            assert [each.id for each in await take(c, 1)] == [second]
            third = await c.broadcast(b"after both", deadline=60)
            await eventually(lambda: [each.id for each in d.explain()] == [third])
            await asyncio.sleep(2.2)  # the second is dead
            [waiting] = d.explain()
            assert waiting.id == third
            assert first in waiting.missing
            proxy.open = True
            assert [each.id for each in await take(d, 2)] == [first, third]
            await asyncio.gather(a.leave(), c.leave(), d.leave())
        await proxy.stop()

    asyncio.run(main())


async def _first(outcomes: AsyncIterator[Outcome], count: int) -> AsyncIterator[Outcome]:
    for _ in range(count):
        yield await anext(outcomes)


def test_the_lifetime_of_a_group_is_in_seconds(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_group("a", "b", protocol="barrier", lifetime=2.5, trace=tmp_path) as (a, b):
            await a.broadcast(b"for a while")
            await a.broadcast(b"for a moment", deadline=1.5)
            await take(b, 2)

    asyncio.run(main())
    events = open_trace(tmp_path).events()
    assert [each.detail for each in events if each.kind is Kind.BROADCAST] == ["2500000", "1500000"]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"protocol": "vector", "lifetime": 2}, "have no lifetimes"),
        ({"protocol": "barrier", "lifetime": 2, "lifetime_us": 5}, "says the same"),
        ({"protocol": "barrier", "lifetime": 0}, "not a number of seconds"),
        ({"protocol": "barrier", "lifetime": "2 s"}, "not a number of seconds"),
        ({"protocol": "barrier", "lifetime": True}, "not a number of seconds"),
    ],
)
def test_what_is_no_lifetime_is_refused(given: dict[str, object], reason: str) -> None:
    with pytest.raises(ParameterError, match=reason):
        whence.join("room", node="a", peers=loopback("ab"), **given)


def test_what_waits_too_long_is_an_outcome() -> None:
    """The question never reaches C; the answer waits for it, and dies first."""

    async def main() -> None:
        peers = loopback("abc")
        options = {
            "peers": peers,
            "protocol": "barrier",
            "limits": quick_limits(leave_timeout_s=1.0),
            "relay": False,
        }
        async with AsyncExitStack() as stack:
            b, c = [await stack.enter_async_context(whence.join("room", node=n, **options)) for n in "bc"]
            await b.broadcast(b"are you there?")
            await take(c, 1)
            options["peers"] = {**peers, "c": loopback("c")["c"]}  # A looks for C where it is not
            a = await stack.enter_async_context(whence.join("room", node="a", **options))
            await a.broadcast(b"question")
            await take(b, 2)
            answer = await b.broadcast(b"answer", deadline=1.0)
            outcomes = c.outcomes()
            async with asyncio.timeout(20):
                ended = await anext(outcomes)
            assert isinstance(ended, Expired)
            assert ended.id == answer
            await asyncio.gather(b.leave(), c.leave())

    asyncio.run(main())


async def node(config: Path, name: str, trace: Path) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", "from whence.cli.main import main; main()", "node", "--config", config,
        "--node", name, "--trace", trace, "--json", stdin=PIPE, stdout=PIPE, stderr=PIPE,
    )  # fmt: skip


async def said(process: Process) -> str:
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), 30)
    return str(json.loads(line)["text"])


async def say(process: Process, text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(text.encode() + b"\n")
    await process.stdin.drain()


def test_processes_with_a_late_starter_verify_and_replay(tmp_path: Path) -> None:
    config, trace = tmp_path / "node.toml", tmp_path / "trace"
    names = ["ann", "bob", "eve"]
    peers = "\n".join(f'{name} = "127.0.0.1:{port}"' for name, port in zip(names, free_ports(3), strict=True))
    config.write_text(f'group = "room"\nprotocol = "barrier"\nlifetime = 60\n[peers]\n{peers}\n')

    async def main() -> None:
        ann, bob = [await node(config, name, trace) for name in ("ann", "bob")]
        await say(ann, "one")
        assert (await said(ann), await said(bob)) == ("one", "one")
        await say(bob, "two")
        assert (await said(ann), await said(bob)) == ("two", "two")
        eve = await node(config, "eve", trace)
        assert [await said(eve), await said(eve)] == ["one", "two"]
        await say(eve, "three")
        for process in (ann, bob, eve):
            assert await said(process) == "three"
        for process in (ann, bob, eve):
            process.send_signal(signal.SIGTERM)
        for process in (ann, bob, eve):
            await asyncio.wait_for(process.communicate(), 30)
            assert process.returncode == 0

    asyncio.run(main())
    [report] = verify_trace(trace)
    assert report.ok
    assert (report.broadcasts, report.deliveries) == (3, 9)
    again = replay(trace)
    assert again.ok, again.mismatches

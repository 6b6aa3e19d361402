"""Members that talk through a broker: NATS core and JetStream, Redis pub/sub and streams."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from forked import Answer, free_ports, together
from peers.brokerless import BURST
from peers.loads import Load, Place, Tally, produce, timed

ROOT = Path(__file__).resolve().parents[2] / ".peers"  # what `make peers` fetched
UNLIMITED = {"pending_msgs_limit": 1 << 30, "pending_bytes_limit": 1 << 40}


def program(name: str) -> str | None:
    """Where a broker's program is: fetched by `make peers`, or the machine's own."""
    found = next(
        (path for path in (ROOT / "site/bin" / name, ROOT / "deb/usr/bin" / name) if path.exists()), None
    )
    return str(found) if found else shutil.which(name)


@contextmanager
def nats_server(folder: Path) -> Iterator[Place]:
    """A NATS server with its store in the folder (core NATS does not use it)."""
    with _serving(folder, ["nats-server", "-a", "127.0.0.1", "-js", "-sd", str(folder), "-p"]) as place:
        yield place


@contextmanager
def redis_server(folder: Path) -> Iterator[Place]:
    """A Redis server in memory, which does not cut off slow readers."""
    limits = ["--save", "", "--client-output-buffer-limit", "pubsub 0 0 0", "--dir", str(folder)]
    with _serving(folder, ["redis-server", "--bind", "127.0.0.1", *limits, "--port"]) as place:
        yield place


@contextmanager
def _serving(folder: Path, command: list[str]) -> Iterator[Place]:
    [port] = free_ports(1)
    path = program(command[0])
    assert path is not None
    libraries = {"LD_LIBRARY_PATH": str(ROOT / "deb/usr/lib/x86_64-linux-gnu")}
    server = subprocess.Popen(
        [path, *command[1:], str(port)],
        env={**os.environ, **libraries},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield Place(folder, port, server.pid)
    finally:
        server.terminate()
        server.wait()


async def nats_core(name: str, peers: dict[str, str], load: Load, place: Place, barrier: Barrier) -> Answer:
    """One subject, which all publish to and subscribe to: at most once, in the order of each publisher."""
    import nats

    client, tally = await nats.connect(f"nats://127.0.0.1:{place.port}", pending_size=64 << 20), Tally(load)

    async def take(message: Any) -> None:
        tally.take(message.data)

    async def send(burst: list[bytes]) -> None:
        for payload in burst:
            await client.publish("bench", payload)

    await client.subscribe("bench", cb=take, **UNLIMITED)
    await client.flush()
    try:
        return await timed(name, place, tally, barrier, lambda: produce(load, BURST, send))
    finally:
        await client.close()


async def jetstream(name: str, peers: dict[str, str], load: Load, place: Place, barrier: Barrier) -> Answer:
    """A stream in files, not synced for each message; acknowledged publishing, an ordered consumer each."""
    import nats

    client, tally = await nats.connect(f"nats://127.0.0.1:{place.port}", pending_size=64 << 20), Tally(load)
    context = client.jetstream(publish_async_max_pending=4 * BURST)
    if name == "n0":
        await context.add_stream(name="bench", subjects=["bench"])

    async def take(message: Any) -> None:
        tally.take(message.data)

    async def send(burst: list[bytes]) -> None:
        for payload in burst:
            await context.publish_async("bench", payload, wait_stall=60)

    async def work() -> None:
        await produce(load, BURST, send)
        await context.publish_async_completed()

    await together(barrier)
    await context.subscribe("bench", cb=take, ordered_consumer=True, **UNLIMITED)
    try:
        return await timed(name, place, tally, barrier, work)
    finally:
        await client.close()


async def redis_pubsub(
    name: str, peers: dict[str, str], load: Load, place: Place, barrier: Barrier
) -> Answer:
    """One channel; 64 PUBLISH in one pipeline: at most once."""
    import redis.asyncio as redis

    client, tally = redis.Redis(port=place.port), Tally(load)
    channel = client.pubsub(ignore_subscribe_messages=True)
    await channel.subscribe("bench")

    async def read() -> None:
        while tally.delivered < load.deliveries:
            message = await channel.get_message(timeout=None)
            if message is not None:
                tally.take(message["data"])

    async def send(burst: list[bytes]) -> None:
        async with client.pipeline(transaction=False) as pipe:
            for payload in burst:
                pipe.publish("bench", payload)
            await pipe.execute()

    async def work() -> None:
        await asyncio.gather(read(), produce(load, BURST, send))

    try:
        return await timed(name, place, tally, barrier, work)
    finally:
        await channel.aclose()
        await client.aclose()


async def redis_streams(
    name: str, peers: dict[str, str], load: Load, place: Place, barrier: Barrier
) -> Answer:
    """One stream in memory; 64 XADD in one pipeline, blocking XREAD: one order for all readers."""
    import redis.asyncio as redis

    client, reader, tally = redis.Redis(port=place.port), redis.Redis(port=place.port), Tally(load)

    async def read() -> None:
        last: bytes | str = "0"
        while tally.delivered < load.deliveries:
            for _, entries in await reader.xread({"bench": last}, count=8 * BURST, block=0):
                for last, fields in entries:  # noqa: B007
                    tally.take(fields[b"m"])

    async def send(burst: list[bytes]) -> None:
        async with client.pipeline(transaction=False) as pipe:
            for payload in burst:
                pipe.xadd("bench", {"m": payload})
            await pipe.execute()

    async def work() -> None:
        await asyncio.gather(read(), produce(load, BURST, send))

    await client.ping()
    await reader.ping()
    try:
        return await timed(name, place, tally, barrier, work)
    finally:
        await client.aclose()
        await reader.aclose()

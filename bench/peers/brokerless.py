"""Members that talk to each other without a broker: Whence, a bare asyncio mesh, ZeroMQ, Zenoh."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from typing import Any

import whence
from forked import Answer
from peers.loads import Load, Place, Tally, bursts, produce, produce_here, timed

BURST = 64


def whence_member(store: bool, **options: Any) -> Callable[..., Any]:
    """A group of Whence; with a store 256 tasks broadcast side by side, as each waits for the disk."""

    async def member(name: str, peers: dict[str, str], load: Load, place: Place, barrier: Barrier) -> Answer:
        kept = {"store": place.folder / f"{name}.db"} if store else {}
        async with whence.join("bench", node=name, peers=peers, **options, **kept) as group:
            tally = Tally(load)

            async def send(burst: list[bytes]) -> None:
                for payload in burst:
                    await group.broadcast(payload)

            async def send_together(burst: list[bytes]) -> None:
                await asyncio.gather(*map(group.broadcast, burst))

            async def read() -> None:
                take = tally.take
                async for message in group:
                    take(message.payload)
                    if tally.delivered == load.deliveries:
                        break

            async def work() -> None:
                most, chosen = (4 * BURST, send_together) if store else (BURST, send)
                await asyncio.gather(produce(load, most, chosen), read())

            async def settle() -> None:
                while any(link.unacknowledged_messages for link in group.stats().links.values()):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

            await group.wait_connected(60)
            return await timed(name, place, tally, barrier, work, settle)

    return member


class MeshLink(asyncio.Protocol):
    """One connection of the bare mesh: frames of a length and a payload, nothing else."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self.take = take
        self.transport: Any = None
        self.may_write = asyncio.Event()
        self.may_write.set()
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def pause_writing(self) -> None:
        self.may_write.clear()

    def resume_writing(self) -> None:
        self.may_write.set()

    def data_received(self, data: bytes) -> None:
        data = self._rest + data if self._rest else data
        at, end, take = 0, len(data), self.take
        while at + 4 <= end:
            stop = at + 4 + int.from_bytes(data[at : at + 4], "big")
            if stop > end:
                break
            take(data[at + 4 : stop])
            at = stop
        self._rest = data[at:]


async def mesh(name: str, peers: dict[str, str], load: Load, place: Place, barrier: Barrier) -> Answer:
    """Every pair has two connections, each is written by one side: no acknowledgement, order or return."""
    loop, tally = asyncio.get_running_loop(), Tally(load)
    host, port = peers[name].split(":")
    server = await loop.create_server(lambda: MeshLink(tally.take), host, int(port))
    links: list[MeshLink] = []
    for other, address in peers.items():
        while other != name:
            try:
                _, link = await loop.create_connection(lambda: MeshLink(tally.take), *address.split(":"))
            except ConnectionRefusedError:
                await asyncio.sleep(0.02)
                continue
            links.append(link)
            break

    async def send(burst: list[bytes]) -> None:
        data = b"".join([part for payload in burst for part in (len(payload).to_bytes(4, "big"), payload)])
        for link in links:
            link.transport.write(data)
        for payload in burst:
            tally.take(payload)
        for link in links:
            await link.may_write.wait()

    try:
        return await timed(name, place, tally, barrier, lambda: produce(load, BURST, send))
    finally:
        server.close()


async def zeromq(name: str, peers: dict[str, str], load: Load, place: Place, barrier: Barrier) -> Answer:
    """XPUB and SUB sockets, read and written in bursts by one plain loop; queues without a limit."""
    import zmq

    context, tally = zmq.Context(), Tally(load)
    out, into = context.socket(zmq.XPUB), context.socket(zmq.SUB)
    out.sndhwm = into.rcvhwm = 0
    out.xpub_verbose = True  # a word for every subscription, and not for the first alone
    out.bind(f"tcp://{peers[name]}")
    into.setsockopt(zmq.SUBSCRIBE, b"")
    for other in peers.keys() - {name}:
        into.connect(f"tcp://{peers[other]}")
    for _ in range(len(peers) - 1):
        await asyncio.to_thread(out.recv)  # a subscription

    def drain() -> None:
        try:
            while True:
                tally.take(into.recv(zmq.NOBLOCK))
        except zmq.Again:
            pass

    def loop() -> None:
        for wait_s, burst in bursts(load, BURST):
            for payload in burst:
                out.send(payload)
                tally.take(payload)
            if wait_s > 0:
                into.poll(wait_s * 1e3)
            drain()
        while tally.delivered < load.deliveries:
            into.poll()
            drain()

    async def work() -> None:
        loop()

    try:
        return await timed(name, place, tally, barrier, work)
    finally:
        context.destroy(linger=0)


async def zenoh(name: str, peers: dict[str, str], load: Load, place: Place, barrier: Barrier) -> Answer:
    """A peer with TCP links to all others; a call-back reads; a sender waits where a queue is full."""
    import zenoh as library

    settings = {
        "mode": "peer",
        "listen/endpoints": [f"tcp/{peers[name]}"],
        "connect/endpoints": [f"tcp/{address}" for other, address in peers.items() if other < name],
        "scouting/multicast/enabled": False,
    }
    config = library.Config()
    for key, value in settings.items():
        config.insert_json5(key, json.dumps(value))
    tally = Tally(load)
    session = library.open(config)
    subscriber = session.declare_subscriber("bench", lambda sample: tally.take(sample.payload.to_bytes()))
    publisher = session.declare_publisher("bench", congestion_control=library.CongestionControl.BLOCK)
    while len(session.info.peers_zid()) < len(peers) - 1:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.5)  # for the subscriptions to be known everywhere

    def send(burst: list[bytes]) -> None:
        for payload in burst:
            publisher.put(payload)

    try:
        return await timed(
            name, place, tally, barrier, lambda: asyncio.to_thread(produce_here, load, BURST, send)
        )
    finally:
        subscriber.undeclare()
        session.close()

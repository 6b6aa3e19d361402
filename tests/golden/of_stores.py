"""Goldens of durable nodes: stores with a past, what is recovered from them, and how their group goes on.

The stores are written once: a later release must open these very files. To write new ones delete
`data/stores.json.gz` first, which is a change of the format.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from gzip import compress, decompress
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

import whence
from golden.files import load
from session.pairs import Nothing
from support.living import loopback, quick_limits
from whence.core.group import LATER_LIVES
from whence.core.message import Message
from whence.live.store import Store
from whence.protocols import registry
from whence.protocols.registry import lookup
from whence.session.addresses import Address
from whence.session.durable import DurableServer
from whence.session.links import Link
from whence.session.records import Output, RecordCodec

NAMES = ("a", "b", "c")
KINDS: dict[str, dict[str, Any]] = {
    "fifo": {"relay": True},  # the default of the release that wrote these stores
    "vector": {"relay": True},
    "vcube": {"detect": False},
    "barrier": {},
    "matrix": {},
    "domains": {"domains": [["a", "b"], ["b", "c"]]},
}

Files = dict[str, str]  # name of a file -> packed bytes as text


@asynccontextmanager
async def room(protocol: str, folder: Path, names: tuple[str, ...]) -> AsyncIterator[list[whence.Group]]:
    """These members, with their stores."""
    peers = loopback(NAMES)
    async with AsyncExitStack() as stack:
        groups = [
            await stack.enter_async_context(
                whence.join(
                    "room",
                    node=name,
                    peers=peers,
                    protocol=protocol,
                    store=folder / f"{name}.db",
                    limits=quick_limits(leave_timeout_s=0.3),
                    **KINDS[protocol],
                )
            )
            for name in names
        ]
        yield groups
        await asyncio.gather(*(group.leave() for group in groups))


def recovered_host(protocol: str, folder: Path, name: str) -> DurableServer:
    """A node as its store has it, before its opening begins a life."""
    core = registry.make(protocol, name, NAMES, KINDS[protocol])
    peers = sorted((core.linked if core.linked is not None else set(NAMES)) - {name})
    links = {peer: Link(peer, Address("127.0.0.1", 1), dials=name < peer) for peer in peers}
    nothing = Nothing()
    host = DurableServer(core, links, nothing, nothing, lambda: 0)
    store = Store(folder / f"{name}.db")
    snapshot, batches = store.recover()
    store.close()
    codec = RecordCodec(core.packet_type)
    state = None if snapshot is None else msgspec.msgpack.decode(snapshot)
    host.recover(state, (record for batch in batches for record in codec.decode_batch(batch)))
    return host


# Writing


async def _say(group: whence.Group, to: str, payload: bytes) -> None:
    if lookup(group._node.settings.protocol).point_to_point:
        await group.send(to, payload)
    else:
        await group.broadcast(payload)


def files_of(folder: Path, node: str) -> dict[str, bytes]:
    """The files of a node's store, by name."""
    return {path.name: path.read_bytes() for path in folder.glob(f"{node}.db*")}


async def _write(protocol: str, folder: Path) -> Files:
    """Two lives. In the second c is away and a is killed: its store has a snapshot and a log after it."""

    def agent(state: bytes, message: Message) -> tuple[bytes, list[Output]]:
        to = message.origin if lookup(protocol).point_to_point else None
        asked = message.payload.startswith(b"ask")
        return state + message.payload[:1], [Output(to, b"told " + message.payload)] if asked else []

    async with room(protocol, folder, NAMES) as (a, b, c):
        for number in range(5):
            await _say(a, "b", b"early %d" % number)
            await _say(c, "a", b"late %d" % number)
        for _ in range(3):
            b.done(await b.receive())
        await asyncio.sleep(0.5)
    async with room(protocol, folder, NAMES[:2]) as (a, b):
        serving = asyncio.create_task(b.serve(agent))
        for number in range(3):
            await _say(a, "b", b"ask %d" % number)
            await _say(a, "c", b"for c %d" % number)
        await asyncio.sleep(0.5)
        a.done(await a.receive())
        await asyncio.sleep(0.3)
        killed = files_of(folder, "a")
        serving.cancel()
    found = {**killed, **files_of(folder, "b"), **files_of(folder, "c")}
    return {name: b64encode(compress(data, 9, mtime=0)).decode() for name, data in found.items()}


# Reading


def unpack(files: Files, folder: Path) -> Path:
    """The stores on the disk."""
    for name, data in files.items():
        (folder / name).write_bytes(decompress(b64decode(data)))
    return folder


async def recovered(protocol: str, folder: Path) -> dict[str, Any]:
    """What each node is when it has read its store, alone."""
    found: dict[str, Any] = {}
    for name in NAMES:
        host = recovered_host(protocol, folder, name)
        state = host.save()
        for newer, nothing in (("keys", []), ("dead", []), ("lives", [{}, {}, {}])):
            assert state.pop(newer) == nothing  # the release that wrote these stores had none
        found[name] = {
            "state": sha256(msgspec.msgpack.encode(state)).hexdigest(),
            "inbox": [[origin, number, payload.decode()] for origin, number, payload in state["inbox"]],
            "agent": host.agent_state.decode(),
            "broadcasts": host.broadcasts,
            "for": {peer: len(frames) for peer, _, _, frames in state["links"]},
        }
    return found


async def continued(protocol: str, folder: Path, counts: dict[str, int] | None) -> dict[str, list[Any]]:
    """What each node still gives its application, by origin, when all are back, and one more message.

    `counts` says how many messages to wait for; None: as many as come.
    """
    async with room(protocol, folder, NAMES) as groups:
        for group in groups:
            await group.wait_connected(20)
        await _say(groups[0], "c", b"on we go")
        if counts is None:
            await asyncio.sleep(2)
        found: dict[str, list[Any]] = {}
        for group in groups:
            wanted = group.unread if counts is None else counts[group.node]
            async with asyncio.timeout(30):
                messages = [await group.receive() for _ in range(wanted)]
            by_origin = sorted(messages, key=lambda message: message.origin)
            found[group.node] = [[_named(message), message.payload.decode()] for message in by_origin]
            for message in messages:
                group.done(message)
        return found


def _named(message: Message) -> str:
    """Its id; the numbers of a life that begins now are not known beforehand."""
    return str(message.id) if message.number < LATER_LIVES else f"{message.origin}:later"


def _stores() -> dict[str, Any]:
    try:
        files = {protocol: golden["files"] for protocol, golden in load("stores").items()}
    except FileNotFoundError:
        files = {}
    golden: dict[str, Any] = {}
    for protocol in KINDS:
        with TemporaryDirectory() as first, TemporaryDirectory() as second, TemporaryDirectory() as third:
            mine = files.get(protocol) or asyncio.run(_write(protocol, Path(first)))
            golden[protocol] = {
                "files": mine,
                "recovered": asyncio.run(recovered(protocol, unpack(mine, Path(second)))),
                "continued": asyncio.run(continued(protocol, unpack(mine, Path(third)), None)),
            }
    return golden


GOLDENS = {"stores": _stores}

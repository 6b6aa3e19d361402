"""A disk that is full, and one that fails: new sends are refused, what was accepted stays, and it goes on."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import whence
from support.living import eventually, in_a_loop, in_its_life, loopback, quick_limits, take
from whence.errors import StoreError
from whence.live import store as commit
from whence.live.durable import DurableMembership
from whence.verify.run import verify_trace

PAYLOAD = bytes(2000)


def node_of(group: whence.Group) -> DurableMembership:
    member = group._node.membership
    assert isinstance(member, DurableMembership)
    return member


@contextmanager
def full_disk(groups: list[whence.Group], folder: Path) -> Iterator[None]:
    """No block is free for these nodes: the kernel writes what fits, and then refuses; SQLite is full too."""
    write = os.pwrite
    limits = {}
    for group in groups:
        store = node_of(group).store
        limits[store._batches._file] = store._batches._at + 20_000
        pages = store._db.execute("PRAGMA page_count").fetchone()[0]
        store._db.execute(f"PRAGMA max_page_count = {pages + 4}")

    def pwrite(file: int, data: bytes, at: int) -> int:
        room = max(0, limits.get(file, 1 << 40) - at)
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data[:room], at)

    os.pwrite = pwrite  # type: ignore[assignment]
    yield
    os.pwrite = write
    for group in groups:
        node_of(group).store._db.execute("PRAGMA max_page_count = 1000000")


@contextmanager
def failing_writes(groups: list[whence.Group], folder: Path) -> Iterator[None]:
    """The kernel refuses to let any file of this process grow beyond a size: an input-output error."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    longest = max(path.stat().st_size for path in folder.glob("*.db-*"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (longest + 20_000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


@contextmanager
def full_file_system(groups: list[whence.Group], folder: Path) -> Iterator[None]:
    """A real file system without a free block: another file takes them all."""
    hog = folder / "hog"
    with hog.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass  # full
    yield
    hog.unlink()


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of 2 MB in memory, where this machine lets us mount one."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False, text=True)
    except OSError as error:
        pytest.skip(f"no mount on this machine ({error})")
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here ({mounted.stderr.strip()})")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


async def refuse_and_recover(folder: Path, trouble: Callable[..., Any], words: str) -> None:
    """Nodes a and b lose their disk while c, elsewhere, does not; then it works again."""
    peers = loopback("abc")
    stores = {"a": folder / "a.db", "b": folder / "b.db", "c": folder.parent / "c.db"}
    limits = quick_limits(leave_timeout_s=2.0)
    trace = folder.parent / "trace"

    def join(name: str) -> Any:
        return whence.join(
            "room", node=name, peers=peers, protocol="matrix", store=stores[name], trace=trace, limits=limits
        )

    async with join("a") as a, join("b") as b, join("c") as c:
        await a.send("b", b"before")
        await eventually(lambda: b.unread == 1)
        accepted = 1
        refused: list[StoreError] = []
        with trouble([a, b], folder):
            for _ in range(80):
                try:
                    await a.send("b", PAYLOAD)
                    accepted += 1
                except StoreError as error:
                    refused.append(error)
            assert len(refused) > 10
            assert {error.what for error in refused} == {f"store {stores['a']}"}
            assert all(words in error.reason for error in refused)
            stats = a.stats().store
            assert stats is not None
            assert stats.error is not None
            # Together and small, because the kernel's limit is c's too: then b may have room for them.
            payload = bytes(50) if trouble is failing_writes else PAYLOAD
            await asyncio.gather(*[c.send("b", payload) for _ in range(40)])
            if trouble is not failing_writes:
                await eventually(lambda: node_of(b).log.broken is not None)
                assert c.stats().links["b"].unacknowledged_messages > 0
        got = await take(b, accepted + 40)
        assert sum(message.origin == "a" for message in got) == accepted
        await eventually(lambda: node_of(a).log.broken is None)
        after = (await a.send("b", b"after")).number
        assert in_its_life(after) == accepted + 1  # what was refused has no number
        assert (await b.receive()).payload == b"after"
        await asyncio.gather(a.leave(), b.leave(), c.leave())
    [report] = verify_trace(trace, complete=True)
    assert report.ok
    assert report.deliveries == accepted + 41


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "PROBE_S", 0.02)


@pytest.mark.parametrize(
    ("trouble", "words"), [(full_disk, "no room"), (failing_writes, "too large")], ids=["full", "failing"]
)
@in_a_loop
async def test_new_sends_are_refused_and_nothing_is_lost(
    trouble: Callable[..., Any], words: str, tmp_path: Path
) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    await refuse_and_recover(folder, trouble, words)


@in_a_loop
async def test_a_real_full_file_system_refuses_and_recovers(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as folder:
        await refuse_and_recover(folder, full_file_system, "no room")


@contextmanager
def no_room(*groups: whence.Group) -> Iterator[None]:
    """These nodes can write nothing."""
    write = os.pwrite
    files = {node_of(group).store._batches._file for group in groups}

    def pwrite(file: int, data: bytes, at: int) -> int:
        if file in files:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data, at)

    os.pwrite = pwrite  # type: ignore[assignment]
    try:
        yield
    finally:
        os.pwrite = write


@in_a_loop
async def test_what_became_of_a_life_while_the_disk_was_full_is_known_when_it_works_again(
    tmp_path: Path,
) -> None:
    """Nobody says it again: a member is retired, and comes back as another life with an empty store."""
    peers, limits = loopback("abc"), quick_limits(leave_timeout_s=0.2)

    def join(name: str, store: str) -> Any:
        return whence.join(
            "room", node=name, peers=peers, protocol="vector", store=tmp_path / store, limits=limits
        )

    async with join("a", "a.db") as a, join("b", "b.db") as b:
        async with join("c", "c.db") as c:
            await c.broadcast(b"before")
            await asyncio.gather(take(a, 1), take(b, 1))
            life = a._node.links["c"].peer_life
        with no_room(a, b):
            await a.retire("c")
            await eventually(lambda: node_of(a).log.broken is not None)
        await eventually(lambda: node_of(a).host.retired.get("c") == life)
        await eventually(lambda: node_of(b).log.broken is None)
        with no_room(a):
            async with join("c", "c-anew.db") as c:
                await eventually(lambda: a._node.links["c"].channel is not None)
        await eventually(lambda: node_of(a).log.broken is None)
        async with join("c", "c-anew.db") as c:
            await c.broadcast(b"c")
            for each in (a, b):  # which has met c, so that what it says is not before c's cut
                assert (await each.receive()).payload == b"c"
                await each.broadcast(each.node.encode())
            for each, others in ((a, {b"a", b"b"}), (b, {b"a", b"b"}), (c, {b"a", b"b", b"c"})):
                assert {message.payload for message in await take(each, len(others))} == others
            await asyncio.gather(a.leave(), b.leave(), c.leave())

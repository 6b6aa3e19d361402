"""Golden of a node that remembers: the files of one that was killed, and what its next life finds in them.

The files are written once: a later release must open these very ones (`golden/of_stores.py` says how).
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from gzip import compress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import whence
from golden.files import load
from golden.of_stores import Files, files_of, unpack
from support.living import eventually, free_ports, quick_limits
from whence.live.book import SqliteBook

LONG = 600  # messages of the first life: more than a checkpoint waits for


def joined(name: str, port: int, folder: Path, *contacts: int) -> Any:
    return whence.join(
        "room",
        node=name,
        listen=f"127.0.0.1:{port}",
        contact=[f"127.0.0.1:{each}" for each in contacts],
        store=folder / f"{name}.db",
        limits=quick_limits(leave_timeout_s=0.3),
    )


async def _write(folder: Path) -> Files:
    """Two lives; in the second some messages are done, out of order, and the process is killed."""
    ports = free_ports(2)
    async with joined("a", ports[0], folder) as a:
        for number in range(LONG):
            await a.broadcast(b"first %d" % number, key=b"%d" % number if number < 5 else None)
        for _ in range(LONG - 10):
            a.done(await a.receive())
    async with joined("a", ports[0], folder) as a, joined("b", ports[1], folder, ports[0]) as b:
        await b.wait_connected(20)
        await asyncio.gather(*(b.broadcast(b"of b %d" % number) for number in range(20)))
        await a.broadcast(b"second", key=b"second", copies=1)
        await eventually(lambda: a.stats().log.next == LONG + 22)
        read = [await a.receive() for _ in range(12)]
        for message in (read[1], read[4], read[0]):
            a.done(message)
        await asyncio.sleep(0.3)
        found = files_of(folder, "a")
    return {name: b64encode(compress(data, 9, mtime=0)).decode() for name, data in found.items()}


def opened(folder: Path) -> dict[str, Any]:
    """What is in the book."""
    book = SqliteBook(folder / "a.db")
    entries = book.read(book.first, 10_000)
    found = {
        "counts": [book.first, book.next, book.cursor, book.size_bytes],
        "streams": [list(each) for each in book.streams()],
        "lives": book.lives(),
        "done": [lsn for lsn in range(book.cursor, book.next) if book.is_done(lsn)],
        "keys": [book.id_of(key) for key in (b"0", b"4", b"5", b"second")],
        "found": [book.find(0, 17), book.find(1, 1), book.find(2, 20)],
        "entries": [[entry[0], entry[1], list(entry[3]), entry[4].decode()] for entry in entries],
    }
    book.close()
    return found


def _log_stores() -> dict[str, Any]:
    try:
        files = load("log-stores")["files"]
    except FileNotFoundError:
        with TemporaryDirectory() as folder:
            files = asyncio.run(_write(Path(folder)))
    with TemporaryDirectory() as folder:
        return {"files": files, "opened": opened(unpack(files, Path(folder)))}


GOLDENS = {"log-stores": _log_stores}

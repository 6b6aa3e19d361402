"""Shared notes between processes: a CRDT (pycrdt) over a group that remembers.

    python examples/notes/notes.py ann --listen 127.0.0.1:7301              # each on a terminal of its own
    python examples/notes/notes.py bob --listen 127.0.0.1:7302 --contact 127.0.0.1:7301
    python examples/notes/notes.py cid --contact 127.0.0.1:7302             # later: it gets everything

    python examples/notes/notes.py --demo          # offline edits, a late joiner, kill -9, convergence

Type a line to append it to the notes; `show` prints them; Ctrl-D leaves. The folder NAME.notes keeps the
node's log and the state of its document; a snapshot in it lets a newcomer begin where the log was cut.
docs/tutorial-notes.md builds this program in ten steps.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any

import msgspec
from pycrdt import Doc, Text

import whence


class Notes:
    """One node's copy of the notes. Every edit is an update of the document, broadcast and kept by all."""

    def __init__(self, group: whence.Group, folder: Path) -> None:
        self.group = group
        self.doc: Any = Doc()
        self.text = Text()
        self.doc["notes"] = self.text
        self.changed = asyncio.Event()
        self._state = folder / "document"
        self._snapshot = folder / "snapshot"
        if self._state.exists():
            self.doc.apply_update(self._state.read_bytes())

    def __str__(self) -> str:
        return str(self.text)

    async def append(self, line: str) -> None:
        """Write a line at the end; returns when it is on this node's disk, connected or not."""
        before = self.doc.get_state()
        self.text += line + "\n"
        await self.group.broadcast(self.doc.get_update(before))

    async def follow(self) -> None:
        """Apply what others write, and what came while this node was away."""
        while True:
            batch = [await self.group.receive()]
            while self.group.unread:
                batch.append(await self.group.receive())
            for message in batch:
                self.doc.apply_update(message.payload)  # twice does no harm: it is a CRDT
            self._save(self._state, self.doc.get_update())
            for message in batch:  # only now: after a crash they would come again
                self.group.done(message)
            self.changed.set()

    async def compact(self) -> None:
        """When something has become stable, the log is cut there: leave a snapshot for newcomers."""
        async for _ in self.group.stable_cuts():
            self._save(self._snapshot, msgspec.msgpack.encode([self.group.cut(), self.doc.get_update()]))

    @staticmethod
    def _save(path: Path, data: bytes) -> None:
        beside = path.with_suffix(".new")
        beside.write_bytes(data)
        beside.replace(path)


def joining(name: str, folder: Path, listen: str | None, contacts: list[str], snapshot: Path | None) -> Any:
    """Join the notes; a newcomer with a snapshot begins there."""
    folder.mkdir(parents=True, exist_ok=True)
    history: dict[str, Any] = {}
    # Who admits itself founds a group of its own: only the founder, or a member that is back, may do that.
    is_newcomer = bool(contacts) and not (folder / "log.db").exists()
    if snapshot is not None and not (folder / "log.db").exists():
        cut, state = msgspec.msgpack.decode(snapshot.read_bytes())
        (folder / "document").write_bytes(state)
        history = {"history": cut}
    return whence.join(
        "notes",
        node=name,
        listen=listen,
        contact=contacts,
        store=folder / "log.db",
        keep="stable",
        stability=True,
        alone_us=600_000_000 if is_newcomer else 500_000,
        limits=whence.Limits(backoff_max_s=0.5, leave_timeout_s=2.0),
        **history,
    )


async def edit(options: argparse.Namespace) -> None:
    """Follow the notes, and obey the lines of standard input."""
    folder = Path(options.folder or f"{options.name}.notes")
    snapshot = None if options.snapshot is None else Path(options.snapshot)
    async with joining(options.name, folder, options.listen, options.contact, snapshot) as group:
        notes = Notes(group, folder)
        tasks = [asyncio.create_task(notes.follow()), asyncio.create_task(notes.compact())]
        lines = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
        )
        async for raw in lines:
            line = raw.decode().rstrip("\n")
            if line == "show":
                print(json.dumps(str(notes)), flush=True)
            elif line == "status":
                log = group.stats().log
                assert log is not None
                kept = log.next - log.first
                print(json.dumps({"kept": kept, "missed": log.missed, "members": group.members}), flush=True)
            elif line:
                await notes.append(line)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# The demonstration


class Member:
    """A process of the demonstration."""

    def __init__(self, name: str, folder: Path, port: int, contacts: list[int]) -> None:
        self.name = name
        self.folder = folder / f"{name}.notes"
        self.arguments = [name, "--folder", str(self.folder), "--listen", f"127.0.0.1:{port}"]
        for contact in contacts:
            self.arguments += ["--contact", f"127.0.0.1:{contact}"]
        self.process: Process | None = None

    async def start(self, *more: str) -> None:
        """Begin, or begin again."""
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, __file__, *self.arguments, *more, stdin=PIPE, stdout=PIPE
        )

    def say(self, line: str) -> None:
        """Type a line."""
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())

    async def ask(self, word: str) -> Any:
        """Type a word that is answered."""
        assert self.process is not None
        assert self.process.stdout is not None
        self.say(word)
        return json.loads(await asyncio.wait_for(self.process.stdout.readline(), 60))

    async def kill(self) -> None:
        """End it as a power cut does."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGKILL)
        await self.process.wait()

    async def end(self) -> None:
        """Ctrl-D."""
        assert self.process is not None
        assert self.process.stdin is not None
        if self.process.returncode is not None:
            return
        self.process.stdin.close()
        await asyncio.wait_for(self.process.wait(), 60)


async def until_all(members: list[Member], lines: set[str]) -> str:
    """Wait until all show the same text with these lines, and return it."""
    async with asyncio.timeout(120):
        while True:
            shown = [await member.ask("show") for member in members]
            if len(set(shown)) == 1 and lines <= set(shown[0].splitlines()):
                return str(shown[0])
            await asyncio.sleep(0.2)


async def demo() -> bool:
    """Five scenes; each must end in one text for all."""
    ports = [random.randrange(20_000, 32_000) for _ in range(3)]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        ann = Member("ann", folder, ports[0], [])
        bob = Member("bob", folder, ports[1], [ports[0]])
        cid = Member("cid", folder, ports[2], [ports[0]])
        await ann.start()
        await bob.start()
        bob.say("the first line")  # when ann has admitted him
        said = {"the first line"}
        await until_all([ann, bob], said)
        for member, line in ((ann, "ann wrote alone"), (bob, "bob wrote alone")):
            await ann.end()
            await bob.end()
            await member.start()
            member.say(line)
            said.add(line)
            await until_all([member], {line})
        await ann.start()
        await until_all([ann, bob], said)
        print("edited offline, then together: one text")
        await bob.kill()
        ann.say("while bob was down")
        await until_all([ann], {"while bob was down"})
        await bob.start()
        said |= {"while bob was down"}
        await until_all([ann, bob], said)
        print("killed and restarted: one text")
        for number in range(30):
            (ann if number % 2 else bob).say(f"line {number}")
            said.add(f"line {number}")
        await until_all([ann, bob], said)
        async with asyncio.timeout(120):
            while (await ann.ask("status"))["kept"] > 60 or not (ann.folder / "snapshot").exists():  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.2)
        print("the log is cut at what is stable: a snapshot stands for the rest")
        await cid.start("--snapshot", str(ann.folder / "snapshot"))
        cid.say("cid came late")
        said.add("cid came late")
        await until_all([ann, bob, cid], said)
        print("joined late from a snapshot: one text")
        for member in (ann, bob, cid):
            await member.end()
    return True


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Shared notes that survive anything.")
    parser.add_argument("name", nargs="?", help="who you are")
    parser.add_argument("--listen", help="where others reach you, as host:port")
    parser.add_argument("--contact", action="append", default=[], help="someone who is there, as host:port")
    parser.add_argument("--folder", help="where to keep log and document [default: NAME.notes]")
    parser.add_argument("--snapshot", help="begin with the snapshot of another")
    parser.add_argument("--demo", action="store_true", help="let three processes write")
    options = parser.parse_args()
    if options.demo:
        sys.exit(0 if asyncio.run(demo()) else 1)
    if options.name is None or (options.listen is None and not options.contact):
        parser.error("say who you are, and --listen or --contact; or --demo")
    asyncio.run(edit(options))


if __name__ == "__main__":
    main()

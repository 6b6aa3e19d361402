"""Members of a group that remembers, each in its own process, to be killed: their records are their own.

    PYTHONPATH=tests python tests/live/log_member.py      # forks one for every line of settings that it reads

The parent has imported everything, so that a member starts as fast as a process can; it says the pid of each
that it starts (`started PID`) and how each ended (`ended PID CODE`, minus the signal).

It writes a line for every message that `broadcast` has returned for, and for every one that it was given,
before it is done with it. A message says what its application had read since its own last message (in a new
life: all that its records tell): the judge needs no trace.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import whence
from whence.errors import WhenceError
from whence.live import blocks


@dataclass
class LogSettings:
    """What a member is told."""

    node: str
    folder: str
    listen: str
    contacts: list[str]
    pause_s: float = 0.01
    durable: bool = True
    trace: bool = False
    copies: int = 0
    fold_bytes: int = 20_000  # a fiftieth of what is usual, so that kills meet the folding of batches
    options: dict[str, Any] = field(default_factory=dict)


async def main(settings: LogSettings) -> None:
    folder = Path(settings.folder)
    records = folder / f"{settings.node}.records"
    blocks.FOLD_BYTES = settings.fold_bytes
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    files: dict[str, Path] = {"store": folder / f"{settings.node}.db"} if settings.durable else {}
    if settings.trace:
        files["trace"] = folder / "trace"
    limits = whence.Limits(
        backoff_first_s=0.02, backoff_max_s=0.3, leave_timeout_s=2.0, heartbeat_s=1.0, silence_s=5.0
    )
    joining = whence.join(
        "room",
        node=settings.node,
        listen=settings.listen,
        contact=settings.contacts,
        limits=limits,
        plaintext=True,
        **files,
        **settings.options,
    )
    read = _earlier(records)  # since the last own message
    with records.open("a") as file:

        def record(*words: object) -> None:
            file.write(" ".join(map(str, words)) + "\n")
            file.flush()  # with the kernel: a killed process keeps it

        record("open")
        async with joining as group:

            async def speak() -> None:
                while not (folder / "quiet").exists():
                    payload = json.dumps({"after": read}).encode()
                    read.clear()
                    try:
                        id_ = await group.broadcast(payload, copies=settings.copies)
                    except WhenceError as error:
                        record("error", error)
                        return
                    record("said", id_)
                    await asyncio.sleep(settings.pause_s)

            speaking = asyncio.create_task(speak())
            stopping = asyncio.create_task(stop.wait())
            reading = asyncio.create_task(_read(group, read, record))
            await asyncio.wait([stopping, reading], return_when=asyncio.FIRST_COMPLETED)
            for task in (speaking, reading):
                task.cancel()
            await asyncio.gather(speaking, reading, return_exceptions=True)


def _earlier(records: Path) -> dict[str, int]:
    """What earlier lives have read, of each stream, since the store was last put back."""
    read: dict[str, int] = {}
    for line in records.read_text().splitlines() if records.exists() else ():
        if line.startswith("got "):
            stream, _, number = line.split(" ", 2)[1].rpartition(":")
            read[stream] = max(read.get(stream, 0), int(number))
        elif line == "forgot":
            read.clear()
    return read


async def _read(group: whence.Group, read: dict[str, int], record: Any) -> None:
    async for outcome in group.outcomes():
        if isinstance(outcome, whence.Message):
            id_ = outcome.id
            record("got", id_, outcome.payload.decode())
            read[id_.origin] = max(read.get(id_.origin, 0), id_.number)
        elif isinstance(outcome, whence.Missed):
            record("missed", outcome.stream, outcome.first, outcome.last, outcome.reason)
        else:
            record("news", type(outcome).__name__, *outcome)


def bury(*_signal: object) -> None:
    """Say which members have ended."""
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            pid, status = found
            os.write(1, b"ended %d %d\n" % (pid, os.waitstatus_to_exitcode(status)))


def bear() -> None:
    """Fork a member for every line of standard input."""
    signal.signal(signal.SIGCHLD, bury)
    for line in sys.stdin:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        pid = os.fork()
        if not pid:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
            os.close(0)
            code = 1
            try:
                asyncio.run(main(LogSettings(**json.loads(line))))
                code = 0
            finally:
                os._exit(code)
        os.write(1, b"started %d\n" % pid)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])


if __name__ == "__main__":
    bear()

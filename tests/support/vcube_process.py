"""One member of a live VCube group in its own process, told over its standard input what to do.

python tests/support/vcube_process.py <json>     lines: "quiet" (broadcast no more), "report", "leave"
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import whence
from whence.errors import WhenceError


@dataclass
class Settings:
    """What one member is told."""

    node: str
    peers: dict[str, str]
    trace: str | None = None
    is_victim: bool = False  # it will be killed: nothing that it has recorded may be lost
    joins: bool = False
    pause_s: float = 0.01
    test_interval_us: int = 100_000
    test_timeout_us: int = 2_000_000
    queue_messages: int = 4096


class Member:
    """The parent's handle of a member process."""

    def __init__(self, settings: Settings, process: asyncio.subprocess.Process) -> None:
        self.settings = settings
        self.process = process

    @classmethod
    async def start(cls, settings: Settings) -> Member:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            __file__,
            json.dumps(asdict(settings)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        return cls(settings, process)

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())

    async def report(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        self.say("report")
        line = await asyncio.wait_for(self.process.stdout.readline(), 20)
        report: dict[str, Any] = json.loads(line)
        return report

    async def kill(self) -> None:
        """SIGKILL, wherever it is in its work."""
        self.process.kill()
        await self.process.wait()

    async def end(self) -> None:
        if self.process.returncode is None:
            self.say("leave")
            await asyncio.wait_for(self.process.wait(), 30)


def report_of(group: whence.Group, seen: dict[str, list[int]], error: str) -> dict[str, Any]:
    core: Any = group._host.core
    return {
        "node": group.node,
        "delivered": {origin: [len(numbers), numbers[-1]] for origin, numbers in sorted(seen.items())},
        "kept": len(core.store),
        "waiting": len(group.explain()),
        "present": list(core.roster.present),
        "phase": str(core.phase),
        "discards": group.stats().discards,
        "held": group.stats().held_messages,
        "error": error,
    }


async def run(settings: Settings) -> None:
    loop = asyncio.get_running_loop()
    stdin = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
    is_quiet = asyncio.Event()
    seen: dict[str, list[int]] = {}
    error = ""
    joining = whence.join(
        "room",
        node=settings.node,
        peers=settings.peers,
        protocol="vcube",
        trace=settings.trace,
        joins=settings.joins,
        test_interval_us=settings.test_interval_us,
        test_timeout_us=settings.test_timeout_us,
        limits=whence.Limits(backoff_first_s=0.02, backoff_max_s=0.3, queue_messages=settings.queue_messages),
    )
    async with joining as group:

        async def speak() -> None:
            nonlocal error
            count = 0
            try:
                while not is_quiet.is_set():
                    await group.broadcast(f"{settings.node} says {count}".encode())
                    if settings.is_victim and group._trace is not None:
                        # On disk before the packets leave: they go in the next turn of the loop.
                        group._trace.flush()
                    count += 1
                    await asyncio.sleep(settings.pause_s)
            except WhenceError as problem:
                error = str(problem)

        async def read() -> None:
            nonlocal error
            try:
                async for message in group:
                    seen.setdefault(message.origin, []).append(message.number)
            except WhenceError as problem:
                error = str(problem)

        tasks = [asyncio.create_task(speak()), asyncio.create_task(read())]
        while (line := (await stdin.readline()).decode().strip()) not in ("leave", ""):
            if line == "quiet":
                is_quiet.set()
            else:
                print(json.dumps(report_of(group, seen, error)), flush=True)
        is_quiet.set()
        await tasks[0]
    await tasks[1]


def main() -> None:
    import faulthandler
    import signal

    faulthandler.register(signal.SIGUSR1)
    asyncio.run(run(Settings(**json.loads(sys.argv[1]))))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()

"""A swarm of processes without a list of members: they join through any one, leave, and are killed.

python examples/swarm.py                                  # 50 processes, a minute of churn
python examples/swarm.py --processes 20 --seconds 20 --trace folder
python examples/swarm.py --demo                           # 6 processes, a few seconds

Everybody broadcasts all the time, links are opened and closed under the traffic, and at the end the traces
of all are put together and verified: nothing twice, nothing out of causal order, and those who stayed agree.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import socket
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from typing import Any

import whence

PROGRESS_S = 5.0  # between two lines that say how far it is
CALM_S = 120.0  # links whose other end was killed are given up after some time-outs of 5 s
WAVE = 6  # processes that start side by side: each needs a second of a processor to start
PATIENT = whence.Limits(connect_timeout_s=30.0, handshake_timeout_s=30.0, silence_s=30.0)


async def member(name: str, listen: str, contact: str | None, trace: str, pause_s: float) -> None:
    """One process: broadcast until told to be quiet, read, answer the parent's questions, leave."""
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    joining = whence.join(
        "swarm",
        node=name,
        listen=listen,
        contact=contact,
        protocol="prc",
        trace=trace,
        shuffle_s=4 * pause_s,
        limits=PATIENT,
    )
    async with joining as group:
        newest: dict[str, int] = {}  # of each origin, the number of its newest message here
        reading = asyncio.create_task(read(group, newest))
        speaking = asyncio.create_task(speak(group, pause_s))
        print("in", flush=True)
        async for line in lines:
            if line == b"quiet\n":
                speaking.cancel()
            elif line == b"report\n":
                stats = group.stats()
                print(json.dumps([stats.control_entries, sorted(newest.items())]), flush=True)
            else:
                break
        speaking.cancel()
    await reading


async def read(group: whence.Group, newest: dict[str, int]) -> None:
    """Take what is delivered."""
    async for message in group:
        newest[message.origin] = message.number


async def speak(group: whence.Group, pause_s: float) -> None:
    """Broadcast again and again."""
    while True:
        await group.broadcast(b"I am here")
        group.flush_trace()  # before the message leaves: we may be killed at any time
        await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))


class Swarm:
    """The parent: starts processes, has them leave, kills them."""

    def __init__(self, trace: str, pause_s: float) -> None:
        self.trace = trace
        self.pause_s = pause_s
        self.there: dict[str, tuple[Process, str]] = {}  # name -> process, where it listens
        self.joined = self.left = self.killed = 0
        self._told_s = time.monotonic()

    def progress(self, line: str) -> None:
        """Say how far it is, now and then."""
        now_s = time.monotonic()
        if now_s - self._told_s >= PROGRESS_S:
            self._told_s = now_s
            print(f"  {line}", flush=True)

    async def join(self, count: int) -> None:
        """Start processes, each with some process that is there as its contact."""
        wanted = len(self.there) + count
        is_start = count > 1
        while count > 0:
            wave = min(count, WAVE) if self.there else 1  # the first has no contact
            count -= wave
            contacts = [listen for _, listen in self.there.values()] or [""]
            started = [await self._start(random.choice(contacts)) for _ in range(wave)]
            for name, process, listen in started:
                if await line_of(process) != "in":
                    raise SystemExit(f"{name} did not come in")
                self.there[name] = (process, listen)
            if is_start:
                self.progress(f"{len(self.there)} of {wanted} processes are in")

    async def _start(self, contact: str) -> tuple[str, Process, str]:
        self.joined += 1
        name, listen = f"p{self.joined:03d}", f"127.0.0.1:{free_port()}"
        arguments = [name, listen, contact, self.trace, str(self.pause_s)]
        process = await asyncio.create_subprocess_exec(
            sys.executable, __file__, "--member", *arguments, stdin=PIPE, stdout=PIPE
        )
        return name, process, listen

    async def leave(self, name: str) -> None:
        """One process says good-bye."""
        process, _ = self.there.pop(name)
        self.left += 1
        await tell(process, "leave")
        await process.wait()

    async def kill(self, name: str) -> None:
        """One process ends as by a power cut."""
        process, _ = self.there.pop(name)
        self.killed += 1
        process.kill()
        await process.wait()

    async def churn(self, seconds: float) -> None:
        """One goes and one comes, again and again."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + seconds
        while loop.time() < end_s:
            await asyncio.sleep(self.pause_s)
            go = self.kill if self.killed < self.left else self.leave
            await go(random.choice(sorted(self.there)))
            await self.join(1)
            left_s = max(0.0, end_s - loop.time())
            self.progress(f"{self.left} left, {self.killed} were killed, as many came; {left_s:.0f} s more")

    async def calm(self) -> bool:
        """Stop the traffic; whether all hold the same soon, and none keeps control information.

        Links are exchanged as before, so at any time somebody is opening one: each has to be seen without.
        """
        await asyncio.sleep(5 * self.pause_s)  # who came last hears from everybody before all fall silent
        for process, _ in self.there.values():
            await tell(process, "quiet")
        emptied: set[str] = set()
        end_s = time.monotonic() + CALM_S
        while time.monotonic() < end_s:
            answers = await asyncio.gather(*(report(process) for process, _ in self.there.values()))
            reports = dict(zip(self.there, answers, strict=True))
            newest = {str([pair for pair in pairs if pair[0] in self.there]) for _, pairs in reports.values()}
            if len(newest) == 1:
                emptied |= {name for name, (entries, _) in reports.items() if not entries}
            if emptied == set(self.there):
                return True
            self.progress(f"{len(emptied)} of {len(self.there)} hold the same and nothing else")
            await asyncio.sleep(0.2)
        return False


async def tell(process: Process, line: str) -> None:
    """A line for a process."""
    assert process.stdin is not None
    process.stdin.write(f"{line}\n".encode())
    await process.stdin.drain()


async def line_of(process: Process) -> str:
    """The next line of a process."""
    assert process.stdout is not None
    return (await asyncio.wait_for(process.stdout.readline(), 120)).decode().strip()


async def report(process: Process) -> Any:
    """What a process holds: entries of control information, and the newest number of each origin."""
    await tell(process, "report")
    return json.loads(await line_of(process))


async def swarm(processes: int, seconds: float, pause_s: float, trace: str) -> bool:
    """Let a swarm live; whether everything was as promised."""
    from whence.verify.survivors import disagreements

    from whence.verify.run import verify_trace  # the members do not need it, and start faster without

    parent = Swarm(trace, pause_s)
    try:
        await parent.join(processes)
        print(f"{processes} processes are in", flush=True)
        await parent.churn(seconds)
        print(f"{parent.joined - processes} more came, {parent.left} left, {parent.killed} were killed")
        calm = await parent.calm()
        survivors = sorted(parent.there)
        print(f"no control information is left: {'yes' if calm else 'no'}", flush=True)
        await asyncio.gather(*(tell(process, "leave") for process, _ in parent.there.values()))
        await asyncio.gather(*(process.wait() for process, _ in parent.there.values()))
    finally:
        for process, _ in parent.there.values():
            if process.returncode is None:
                process.kill()
    [verdict] = verify_trace(trace)
    counts = verdict.counts
    print(f"{verdict.broadcasts} messages, {verdict.deliveries} deliveries")
    print(f"{counts.duplicate} twice, {counts.causal} out of causal order")
    apart = disagreements(trace, survivors)
    print(f"the {len(survivors)} that stayed agree: {'no: ' + apart[0] if apart else 'yes'}")
    kept = calm and verdict.ok and not apart
    print("verdict: every promise was kept" if kept else "verdict: BROKEN")
    return kept


def free_port() -> int:
    """A port that nobody listens on now, outside of the range of outgoing connections."""
    while True:
        port = random.randrange(10_000, 32_000)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Processes that come and go, in causal order.")
    parser.add_argument("--processes", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long processes come and go")
    parser.add_argument("--pause", type=float, default=2.0, help="seconds between a process's messages")
    parser.add_argument("--trace", help="an empty folder for the traces; otherwise they are thrown away")
    parser.add_argument("--demo", action="store_true", help="a small swarm for a short time")
    parser.add_argument("--member", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.member:
        name, listen, contact, trace, pause = options.member
        asyncio.run(member(name, listen, contact or None, trace, float(pause)))
        return
    if options.demo:
        options.processes, options.seconds, options.pause = 6, 2.0, 0.2
    with tempfile.TemporaryDirectory() as folder:
        good = asyncio.run(swarm(options.processes, options.seconds, options.pause, options.trace or folder))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    try:
        main()
    except whence.WhenceError as error:
        sys.exit(f"error: {error}")

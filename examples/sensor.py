"""Readings that are worthless when they are late, over UDP: in causal order, in time, or not at all.

python examples/sensor.py sensor       # each on a terminal of its own; Ctrl-C leaves
python examples/sensor.py cooler
python examples/sensor.py display

python examples/sensor.py --demo       # the three as processes, while a fifth of all is lost

The sensor broadcasts a temperature every 50 ms, good for 0.4 s. The cooler answers each reading above 30
degrees with "cooling"; that answer depends on its reading. The display shows what it is delivered, and
counts what came too late. It never shows an answer and afterwards the reading that caused it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import socket
import sys
from asyncio.subprocess import PIPE

import whence

PORTS = {"sensor": 7101, "cooler": 7102, "display": 7103}
DEADLINE_S = 0.4
EVERY_S = 0.05
HOT = 30
READINGS = 60  # in the demonstration


async def sense(group: whence.Group, readings: int | None) -> dict[str, int]:
    """Broadcast temperatures: a day in a few seconds."""
    sent = 0
    while readings is None or sent < readings:
        degrees = 20 + abs(sent % 40 - 20)
        await group.broadcast(json.dumps({"degrees": degrees}).encode(), deadline=DEADLINE_S)
        sent += 1
        await asyncio.sleep(EVERY_S)
    return {"readings": sent}


async def cool(group: whence.Group) -> dict[str, int]:
    """Answer what is hot; the answer names the reading, so that a reader can see the order."""
    answers = 0
    async for message in group:
        told = json.loads(message.payload)
        if told.get("degrees", 0) > HOT:
            answers += 1
            answer = json.dumps({"cooling because of": message.number}).encode()
            await group.broadcast(answer, deadline=DEADLINE_S)
    return {"answers": answers}


async def show(group: whence.Group, aloud: bool) -> dict[str, int]:
    """Show readings and answers, and count what came too late and what came in the wrong order."""
    seen = {"readings": 0, "answers": 0, "too late": 0, "out of order": 0}
    answered = 0
    async for outcome in group.outcomes():
        if isinstance(outcome, whence.Expired):
            seen["too late"] += 1
            line = f"{outcome.id} came too late"
        else:
            told = json.loads(outcome.payload)
            line = f"{outcome.id} {told}"
            if outcome.origin == "sensor":
                seen["readings"] += 1
                seen["out of order"] += outcome.number <= answered
            else:
                seen["answers"] += 1
                answered = max(answered, told["cooling because of"])
        if aloud:
            print(line, flush=True)
    return seen


async def take_part(name: str, peers: dict[str, str], play: bool) -> None:
    """Be one of the three; in the demonstration, print what was counted."""
    faults = whence.LinkFaults(loss=0.2, seed=1) if play else None
    async with whence.join("room", node=name, peers=peers, protocol="odca", faults=faults) as group:
        if play:
            await group.wait_connected(30)
        if name == "sensor":
            counted = await sense(group, READINGS if play else None)
            await asyncio.sleep(2 * DEADLINE_S)  # the last answers are worth waiting for
        else:
            doing = asyncio.create_task(cool(group) if name == "cooler" else show(group, not play))
            while not doing.done() and not (play and has_left(group, "sensor")):  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.1)
            await group.leave()
            counted = await doing
    if play:
        print(json.dumps(counted))


def has_left(group: whence.Group, name: str) -> bool:
    """Whether a member has said good-bye."""
    return group.stats().links[name].state == "left"


async def demo() -> bool:
    """Three processes; the display must have seen most of it, and nothing in the wrong order."""
    ports = [f"{name}={port}" for name, port in zip(PORTS, free_ports(len(PORTS)), strict=True)]
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, __file__, name, "--play", "--ports", *ports, stdout=PIPE
        )
        for name in PORTS
    ]
    outputs = await asyncio.gather(*(process.communicate() for process in processes))
    if any(process.returncode for process in processes):
        return False
    sensor, cooler, display = (json.loads(output) for output, _ in outputs)
    print(f"sensor:  {sensor['readings']} readings, each good for {DEADLINE_S} s")
    print(f"cooler:  {cooler['answers']} answers to what was hot")
    print(f"display: {display['readings']} readings and {display['answers']} answers in time")
    print(f"         {display['too late']} too late, {display['out of order']} out of order")
    return display["readings"] > 0 and display["out of order"] == 0


def free_ports(count: int) -> list[int]:
    """Some ports that nobody listens on now, outside of the range of outgoing connections."""
    ports: list[int] = []
    while len(ports) < count:
        port = random.randrange(20_000, 32_000)
        with socket.socket(type=socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in ports:
                ports.append(port)
    return ports


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Readings with deadlines, over UDP.")
    parser.add_argument("name", nargs="?", choices=sorted(PORTS), help="who you are")
    parser.add_argument("--demo", action="store_true", help="let the three run as processes")
    parser.add_argument("--play", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "--ports", nargs="*", default=[f"{n}={p}" for n, p in PORTS.items()], metavar="NAME=PORT"
    )
    options = parser.parse_args()
    if options.demo:
        sys.exit(0 if asyncio.run(demo()) else 1)
    if options.name is None:
        parser.error("say who you are, or --demo")
    peers = {name: f"127.0.0.1:{port}" for name, port in (item.split("=") for item in options.ports)}
    try:
        asyncio.run(take_part(options.name, peers, options.play))
    except whence.WhenceError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()

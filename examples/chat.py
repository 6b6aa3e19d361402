"""A chat between real processes, in causal order: nobody sees an answer before its question.

python examples/chat.py alice          # each on a terminal of its own: type lines, Ctrl-D leaves
python examples/chat.py bob
python examples/chat.py carol

python examples/chat.py --demo         # three processes hold a short conversation by themselves
"""

from __future__ import annotations

import argparse
import asyncio
import random
import socket
import sys
from asyncio.subprocess import PIPE

import whence

PORTS = {"alice": 7001, "bob": 7002, "carol": 7003}

# Who says what, after having read whose line: the demonstration's conversation.
SCRIPT = {
    "alice": [("", "Shall we meet at eight?"), ("carol: Nine is fine.", "Nine, then!")],
    "bob": [("alice: Shall we meet at eight?", "Could we make it nine?")],
    "carol": [("bob: Could we make it nine?", "Nine is fine.")],
}
LINES = sum(map(len, SCRIPT.values()))


async def chat(name: str, peers: dict[str, str]) -> None:
    """Type to talk; what the others say is printed as it is delivered."""
    async with whence.join("chat", node=name, peers=peers) as group:
        print(f"You are {name}; {', '.join(group.members)} are expected. Ctrl-D leaves.", flush=True)
        reading = asyncio.create_task(show(group))
        lines = asyncio.StreamReader()
        typed = asyncio.StreamReaderProtocol(lines)
        await asyncio.get_running_loop().connect_read_pipe(lambda: typed, sys.stdin)
        async for line in lines:
            await group.broadcast(line.rstrip(b"\n"))
        await group.leave()
        await reading


async def show(group: whence.Group) -> None:
    """Print what is delivered, but for one's own lines: they are on the screen already."""
    async for message in group:
        if message.origin != group.node:
            print(f"{message.origin}: {message.payload.decode()}", flush=True)


async def play(name: str, peers: dict[str, str]) -> None:
    """Hold one's part of the demonstration, and print the transcript."""
    part = dict(SCRIPT[name])
    async with whence.join("chat", node=name, peers=peers) as group:
        if "" in part:
            await group.broadcast(part[""].encode())
        for _ in range(LINES):
            message = await group.receive()
            line = f"{message.origin}: {message.payload.decode()}"
            print(line)
            if line in part:
                await group.broadcast(part[line].encode())


async def demo() -> bool:
    """Three processes; each transcript must show every line after the one that it answers."""
    ports = free_ports(len(SCRIPT))
    arguments = [f"{name}={port}" for name, port in zip(SCRIPT, ports, strict=True)]
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, __file__, name, "--play", "--ports", *arguments, stdout=PIPE
        )
        for name in SCRIPT
    ]
    transcripts = await asyncio.gather(*(process.communicate() for process in processes))
    for name, (output, _) in zip(SCRIPT, transcripts, strict=True):
        print(f"--- what {name} saw")
        print(output.decode().rstrip())
    return len({output for output, _ in transcripts}) == 1 and not any(p.returncode for p in processes)


def free_ports(count: int) -> list[int]:
    """Some ports that nobody listens on now, outside of the range of outgoing connections."""
    ports: list[int] = []
    while len(ports) < count:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe:
            if port not in ports and probe.connect_ex(("127.0.0.1", port)) != 0:
                ports.append(port)
    return ports


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="A chat in causal order.")
    parser.add_argument("name", nargs="?", choices=sorted(PORTS), help="who you are")
    parser.add_argument("--demo", action="store_true", help="let three processes talk")
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
        asyncio.run((play if options.play else chat)(options.name, peers))
    except whence.WhenceError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()

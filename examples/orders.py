"""A shop whose store must hear of an order before it hears that the order is paid.

The agents of examples/orders.toml. For each order `web` tells the store to reserve the goods, and then the
bank to charge the customer; the bank tells the store that the order is paid, and the store ships it. The two
messages take different ways to the store:

    web -> gate -> store                            "reserve 1 3 apples"
    web -> till -> bank -> till -> gate -> store    "charge 1 3 apples", then "paid 1"

Where the first way is slow, "paid" comes to the gate first. Causal order makes it wait there, so the store
needs no code for payments of orders that it has never heard of.

    python examples/orders.py        run all six servers in this process, with the first way slow
"""

from __future__ import annotations

import asyncio
import json
import socket
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

import whence
from whence import Message, Output

Reaction = tuple[bytes, list[Output]]


def web(state: bytes, message: Message) -> Reaction:
    """Number the order, reserve the goods, charge the customer. The state is the number of orders."""
    number = int(state or b"0") + 1
    order = b"%d %s" % (number, message.payload)
    return b"%d" % number, [Output("store", b"reserve " + order), Output("bank", b"charge " + order)]


def bank(state: bytes, message: Message) -> Reaction:
    """Everybody can pay everything here. The state is the number of payments."""
    number = message.payload.split()[1]
    return b"%d" % (int(state or b"0") + 1), [Output("store", b"paid " + number)]


def store(state: bytes, message: Message) -> Reaction:
    """Ship what is reserved when it is paid. The state is what is reserved, by order."""
    reserved: dict[str, str] = json.loads(state or b"{}")
    what, number, *goods = message.payload.decode().split(maxsplit=2)
    if what == "reserve":
        reserved[number] = " ".join(goods)
        return json.dumps(reserved).encode(), []
    text = f"order {number}: {reserved.pop(number)} shipped"  # a KeyError, if causal order did not hold
    return json.dumps(reserved).encode(), [Output("customer", text.encode())]


# The demonstration: the same six servers in one process

DOMAINS = [["customer", "web", "till", "gate"], ["till", "bank"], ["gate", "store"]]
AGENTS = {"web": web, "bank": bank, "store": store}
SLOW_S = 0.5


async def slow_way(port: int, target_port: int) -> asyncio.Server:
    """A way to `target_port` on which everything takes SLOW_S longer."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await asyncio.sleep(SLOW_S)
            writer.write(data)
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", target_port)
            await asyncio.gather(pump(reader, there_writer), pump(there_reader, writer))
        except ConnectionError:
            writer.close()  # nobody listens there yet, or any more

    return await asyncio.start_server(accept, "127.0.0.1", port)


def free_ports(count: int) -> list[int]:
    """Ports that are free now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


async def demonstrate(folder: Path) -> None:
    """Order apples; look at the gate while the payment waits there for the order."""
    names = sorted({server for domain in DOMAINS for server in domain})
    *ports, slow_port = free_ports(len(names) + 1)
    peers = {name: f"127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)}
    way = await slow_way(slow_port, ports[names.index("web")])
    async with way, AsyncExitStack() as stack:
        groups: dict[str, whence.Group] = {}
        for name in names:
            seen = {**peers, "web": f"127.0.0.1:{slow_port}"} if name == "gate" else peers
            joining = whence.join(
                "orders", node=name, peers=seen, protocol="domains", domains=DOMAINS, store=folder / name
            )
            groups[name] = await stack.enter_async_context(joining)
        for group in groups.values():
            await group.wait_connected(30)
        serving = [asyncio.create_task(groups[name].serve(agent)) for name, agent in AGENTS.items()]
        await groups["customer"].send("web", b"3 apples")
        while not (waiting := groups["gate"].explain()):  # noqa: ASYNC110 - we look on; nothing tells us
            await asyncio.sleep(0.01)
        for each in waiting:
            missing = ", ".join(map(str, each.missing))
            print(f"gate: {each.id} (paid) waits for {missing} (reserve)")
        message = await groups["customer"].receive()
        print(f"customer: {message.payload.decode()}")
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


def main() -> None:
    """Run the demonstration."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(demonstrate(Path(folder)))


if __name__ == "__main__":
    main()

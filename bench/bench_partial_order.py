"""What it costs to tell concurrent messages apart: names on a message, bytes, names in memory, CPU time.

PRC with the cores, 40 processes, 600 broadcasts; along the messages under way at a time, which is the
rate times the mean time from broadcast to delivery. "vector" is what a whole vector clock on each message
would take in the same encoding: a name and a number of every process. --quick: 150 broadcasts.
"""

from __future__ import annotations

import argparse
import json
import time

from whence.core.message import MessageId
from whence.core.partial_order import PartialOrder
from whence.live.ordered import with_past
from whence.sim.engine import Engine
from whence.studies.prc.grid import changing
from whence.studies.prc.measures import MINUTE_US, SECOND_US
from whence.trace.schema import Kind, Level

NODES = 40
POINTS = [(1, 20), (10, 20), (10, 200), (100, 20), (100, 200), (1_000, 20)]  # broadcasts per s, delay in ms


class Deliveries:
    """The rows that matter, in the order of the run."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, int, Kind, MessageId]] = []

    def event(
        self, node: str, time_us: int, kind: Kind, origin: str | None = None, number: int = 0, *_: object
    ) -> None:
        """Keep a row."""
        if kind in (Kind.BROADCAST, Kind.DELIVER):
            self.rows.append((node, time_us, kind, MessageId(origin or "", number)))


def recorded(rate: int, delay_ms: int, broadcasts: int) -> Deliveries:
    start_us = MINUTE_US + SECOND_US
    stop_us = start_us + broadcasts * SECOND_US // rate
    recorder = Deliveries()
    scenario = changing(
        nodes=NODES,
        duration_us=stop_us + 10 * SECOND_US,
        joins_us=MINUTE_US,
        delays=[(MINUTE_US, 1_000), (MINUTE_US + 1, delay_ms * 1_000)],
        shuffle_every_us=20 * SECOND_US,
        shuffle_stop_us=stop_us,
        broadcast_start_us=start_us,
        broadcast_stop_us=stop_us,
        broadcast_every_us=SECOND_US // rate,
    )
    Engine(scenario, None, recorder, level=Level.DELIVERIES).run()
    return recorder


def point(rate: int, delay_ms: int, broadcasts: int) -> dict[str, float]:
    """One line of the table."""
    rows = recorded(rate, delay_ms, broadcasts).rows
    orders: dict[str, PartialOrder] = {}
    sent_us: dict[MessageId, int] = {}
    names: dict[MessageId, tuple[MessageId, ...]] = {}
    entries = waited_us = deliveries = 0
    start_s = time.process_time()
    for node, time_us, kind, message in rows:
        order = orders.setdefault(node, PartialOrder(node))
        if kind is Kind.BROADCAST:
            sent_us[message], names[message] = time_us, order.name_past()
        else:
            order.delivered(message, names[message])
            entries += order.entries()
            waited_us += time_us - sent_us[message]
            deliveries += 1
    cpu_s = time.process_time() - start_s
    headers = [len(with_past(past, b"")) - len(with_past((), b"")) for past in names.values()]
    clock = tuple(MessageId(name, broadcasts // NODES) for name in sorted(orders))
    return {
        "rate": rate,
        "delay_ms": delay_ms,
        "under_way": rate * waited_us / deliveries / SECOND_US,
        "names": sum(map(len, names.values())) / len(names),
        "bytes": sum(headers) / len(headers),
        "vector_bytes": len(with_past(clock, b"")) - len(with_past((), b"")),
        "entries": entries / deliveries,
        "cpu_us": 1e6 * cpu_s / deliveries,
    }


def main() -> None:
    """Print the table, and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer broadcasts")
    broadcasts = 150 if parser.parse_args().quick else 600
    heads = ("rate", "delay_ms", "under_way", "names", "bytes", "vector_bytes", "entries", "cpu_us")
    print("".join(f"{head:>13}" for head in heads))
    found = []
    for rate, delay_ms in POINTS:
        line = point(rate, delay_ms, broadcasts)
        found.append(line)
        print("".join(f"{line[head]:13.2f}" for head in heads), flush=True)
    ratios = {
        f"{each['rate']}/s,{each['delay_ms']}ms": each["bytes"] / each["vector_bytes"] for each in found
    }
    print(json.dumps({"bench": "partial_order", "ratios": ratios}))


if __name__ == "__main__":
    main()

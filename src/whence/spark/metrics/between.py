"""The tables between the steps of a summary: what tasks pass on to tasks.

EVENTS or SEGMENTS -> PACKED -by node-> NODES, COPIES (WORK) -by origins-> PARTS -by run-> WHOLES
"""

from __future__ import annotations

from whence.spark.tables import EVENT, LATENCY_MEASURES, table_of

# Many events of one node: event i has the `seq` of its list or, where that is null as in a trace at rest,
# `first_seq` + i.
PACKED = table_of(
    {
        "run": "string",
        "node": "string",
        "names": "array<string>",
        "first_seq": "bigint",
        "seq": "array<bigint>",
    }
    | {name: f"array<{kind}>" for name, kind in EVENT.items() if name != "peer"}
)
# What one node did: counts, and peaks of what it held.
NODE_COUNTS = (
    "broadcasts",
    "deliveries",
    "remote",  # deliveries of others' messages
    "sends",
    "total",
    "control",
    "discarded",
    "receptions",
)
NODE_PEAKS = ("held_peak", "entries_peak")
_NODE = dict.fromkeys((*NODE_COUNTS, *NODE_PEAKS), "bigint")
NODES = table_of({"run": "string", "node": "string"} | _NODE)
# Many messages at nodes other than their origins, and the broadcasts of messages. Binary is 64-bit numbers:
# Spark copies them as a whole, and a list number by number.
_COPIES = {"run": "string", "bucket": "int", "names": "array<string>"}
_COPIES |= dict.fromkeys(("node", "origin", "number", "received_us", "delivered_us"), "binary")
_COPIES |= dict.fromkeys(("sent_origin", "sent_number", "sent_us"), "binary")
COPIES = table_of(_COPIES)
# Both in one pass: a row has counts and peaks, or else a bucket.
WORK = table_of(_COPIES | _NODE)
# A part of a run: counts and peaks, or else sums, and how often each latency occurs (all values, all counts).
_SUMS = {"waited": "bigint"}
_SUMS |= {f"{each}_{name}": "bigint" for each in LATENCY_MEASURES for name in ("sum", "count", "max_us")}
PARTS = table_of({"run": "string"} | _NODE | _SUMS | {f"{each}_occur": "binary" for each in LATENCY_MEASURES})
# A run: the same of all parts together.
WHOLES = table_of(
    {"run": "string"}
    | _NODE
    | _SUMS
    | {f"{each}_{name}": "double" for each in LATENCY_MEASURES for name in ("p50_us", "p99_us")}
)

"""Simulated systems of servers with point-to-point messages, judged by the verifier."""

from __future__ import annotations

from typing import Any

from support.running import simulate
from whence.core.protocol import Protocol
from whence.sim.files import from_dict
from whence.sim.model import node_names
from whence.trace.memory import MemoryTrace
from whence.trace.schema import PromisesMade
from whence.verify.report import RunReport
from whence.verify.run import verify_table

EVERYTHING = PromisesMade(causal=True, fifo=True, no_duplicates=True, complete=True)
HEAVY_TAIL = {"kind": "pareto", "min_us": 500, "shape": 0.9, "max_us": 3_000_000}


def scenario(nodes: int, seed: int, protocol: str = "domains", **params: Any) -> dict[str, Any]:
    """Everybody sends now and then and answers much of what it gets, over links that reorder and
    duplicate."""
    return {
        "nodes": nodes,
        "protocol": protocol,
        "seed": seed,
        "params": params,
        "link": {"delay": HEAVY_TAIL, "duplicate": 0.15},
        "workloads": [
            {"kind": "poisson", "interval_us": 20_000, "count": 8},
            {"kind": "replies", "probability": 0.6, "depth": 5, "count": 20},
        ],
        "stop": {"duration_us": 300_000, "drain_max_us": 10**10},
    }


def judge(described: dict[str, Any], make: type[Protocol] | None = None, *, check: bool = True) -> RunReport:
    """Run it and verify it; `make` makes other cores, with the scenario's parameters."""
    checked = from_dict(described)
    trace = MemoryTrace()
    factory = None
    if make is not None:
        factory = lambda me, members: make(me, members, **described["params"])  # noqa: E731 - one line, used once
    simulate(checked, trace, make=factory, check=check)
    return verify_table(trace.table("run"), EVERYTHING, node_names(checked.nodes))

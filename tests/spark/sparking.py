"""Scenarios for the Spark tests."""

from __future__ import annotations

from typing import Any

from whence.sim.files import Scenario, from_dict


def scenario(protocol: str = "vector", *, nodes: int = 5, seed: int = 1, **more: Any) -> Scenario:
    """Some 150 broadcasts over a network that reorders and duplicates, sampled now and then."""
    base: dict[str, Any] = {
        "name": "spark-test",
        "nodes": nodes,
        "protocol": protocol,
        "seed": seed,
        "stop": {"duration_us": 100_000},
        "link": {"delay": {"kind": "uniform", "low_us": 500, "high_us": 30_000}, "duplicate": 0.05},
        "workloads": [
            {"kind": "poisson", "interval_us": 8_000, "payload_bytes": 40},
            {"kind": "replies", "probability": 0.1, "payload_bytes": 20},
        ],
        "record": {"level": "all", "sample_every_us": 2_000},
    }
    return from_dict(base | more)

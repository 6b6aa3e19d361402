"""What the demonstration computes from one run, and from the two runs of a seed."""

from __future__ import annotations

from collections.abc import Iterator

from whence.studies.results import Derived, Results, Row


def derive(row: Row) -> dict[str, float | None]:
    """The measures of one run, from what Spark and the verifier counted."""
    remote = row.measure("deliveries") - row.measure("broadcasts")
    undelivered = row.measure("broadcasts") * int(row.labels["nodes"]) - row.measure("deliveries")
    milliseconds = {
        f"{name}_ms": _scaled(row.measures[f"{name}_us"], 1e-3)
        for name in ("reception_mean", "delivery_mean", "delivery_p99", "held_mean")
    }
    return {
        "remote_deliveries": remote,
        "undelivered": undelivered,
        "violations_per_1000": 1000 * row.measure("causal") / remote if remote else None,
        "held_percent": _scaled(row.measures["held_share"], 100),
        **milliseconds,
    }


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def apart(results: Results) -> Iterator[Derived]:
    """How far the two protocols are apart in each seed, where all delays are equal."""
    for row in results.select(network="constant", protocol="vector"):
        for other in results.select(**{**row.labels, "protocol": "fifo"}):
            for measure in ("delivery_mean_us", "delivery_max_us"):
                ours, theirs = row.measures.get(measure), other.measures.get(measure)
                if ours is not None and theirs is not None:
                    labels = {**row.labels, "protocol": "vector less fifo", "of": measure}
                    yield Derived(labels, {"apart_us": ours - theirs})

"""The measures of section VI-A, by the paper's names and definitions; ratios are of totals."""

from __future__ import annotations

import msgspec
import numpy as np

from whence.kernels.compile import Array


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """min / max / avg / stdev, as Tables III and VI state them, in microseconds; of nothing: zeros."""

    count: int
    min_us: int
    max_us: int
    mean_us: float
    deviation_us: float


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """One run, as in Tables II, III, V and VI."""

    broadcasts: int  # bcast
    receives: int  # rcvd: first copies from others
    deliveries: int  # codlvd: a node's own messages included
    delivery_ratio: float  # codlvratio: deliveries / (broadcasts + receives)
    expiries: int  # expd: received, and dead before their turn came
    expiry_ratio: float  # expratio: expiries / receives
    waiting: int  # received, neither delivered nor expired: the node left, or the run ended
    delay: Spread  # tdelay, of every receive
    latency: Spread  # ltcy, of every received message that was co-delivered
    age: Spread  # codlvdelay
    barrier_mean: float  # scb: entries in a message's barrier
    barrier_max: int


def measure(
    *,
    broadcasts: int,
    delay_us: Array,
    latency_us: Array,
    age_us: Array,
    deliveries: int,
    expiries: int,
    barrier_entries: Array,
) -> Measures:
    """Sum up one run."""
    receives = len(delay_us)
    return Measures(
        broadcasts=broadcasts,
        receives=receives,
        deliveries=deliveries,
        delivery_ratio=deliveries / max(broadcasts + receives, 1),
        expiries=expiries,
        expiry_ratio=expiries / max(receives, 1),
        waiting=broadcasts + receives - deliveries - expiries,
        delay=spread(delay_us),
        latency=spread(latency_us),
        age=spread(age_us),
        barrier_mean=float(barrier_entries.mean()) if len(barrier_entries) else 0.0,
        barrier_max=int(barrier_entries.max()) if len(barrier_entries) else 0,
    )


def spread(values_us: Array) -> Spread:
    """min / max / avg / stdev of some times."""
    if not len(values_us):
        return Spread(count=0, min_us=0, max_us=0, mean_us=0.0, deviation_us=0.0)
    return Spread(
        count=len(values_us),
        min_us=int(values_us.min()),
        max_us=int(values_us.max()),
        mean_us=float(values_us.mean()),
        deviation_us=float(np.std(values_us)),
    )

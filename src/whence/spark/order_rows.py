"""From rows to arrivals: the few lines that stream and sort share on the workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from whence.spark.ordering import Arrival, CausalOrder, Policy


class Settings(NamedTuple):
    """What a worker must know of an order."""

    policy: Policy
    remember_us: int | None
    horizon_us: int
    vector: bool
    numeric: bool  # ids are numbers

    def order(self, saved: bytes = b"") -> CausalOrder:
        """A new order, or one that goes on."""
        return CausalOrder(
            self.policy,
            remember_us=self.remember_us,
            horizon_us=self.horizon_us,
            vector=self.vector,
            saved=saved,
        )


class OrderRow(NamedTuple):
    """A row's five columns, and what it carries."""

    at_us: int | None
    id: str | None
    needs: list[str | None] | None
    needs_us: list[int | None] | None
    lifetime_us: int | None
    tie: int
    payload: Any


def in_time(rows: Iterable[OrderRow], numeric: bool) -> list[OrderRow]:
    """Rows in order of time; ties by id and then content, so that partitions make no difference."""

    def place(row: OrderRow) -> tuple[Any, ...]:
        id_: Any = int(row.id or 0) if numeric else row.id or ""
        return (-1 if row.at_us is None else row.at_us, id_, row.tie)

    return sorted(rows, key=place)


def arrivals(rows: Iterable[OrderRow], order: CausalOrder) -> Iterator[Arrival]:
    """What to offer. A row without a time came just now; one without a lifetime has the largest one."""
    for row in rows:
        named = row.needs or []
        until_us = row.needs_us or [None] * len(named)
        needs: dict[str, int | None] = {}
        for need, us in zip(named, until_us, strict=True):
            if need is not None:
                known = needs.get(need)
                needs[need] = us if known is None or us is None else max(us, known)
        at_us = order.now_us if row.at_us is None else row.at_us
        lifetime_us = order.horizon_us if row.lifetime_us is None else row.lifetime_us
        yield Arrival(row.id, at_us, lifetime_us, needs, row.payload)

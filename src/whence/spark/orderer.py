"""The order of each key between Spark's callbacks: what `causal_order` gives to `transformWithState`.

This module is sent as code (see `shipped.py`): it may name nothing of the package outside its functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from whence.spark.shipped import by_value, find_shipped

if TYPE_CHECKING:
    from whence.spark.order_rows import Settings
    from whence.spark.ordering import CausalOrder, Ending

by_value(__name__)

_STATE = StructType([StructField("blob", BinaryType()), StructField("timer_ms", LongType())])


class Orderer(StatefulProcessor):
    """The order of each key.

    Spark calls the timer's callback by keyword and its tester by position: names and order are Spark's own.
    """

    def __init__(self, settings: Settings) -> None:
        # Without their class, which the driver's Python need not have.
        self._fields: tuple[Any, ...] = tuple(settings)

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called once by Spark, before anything else."""
        self._handle = handle
        self._state = handle.getValueState("order", _STATE)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        """The rows of one key in one batch."""
        find_shipped()
        from whence.spark.order_rows import OrderRow, arrivals, in_time

        order, timer_ms = self._load()
        given = [
            OrderRow(row.at_us, row.id, row.needs, row.needs_us, row.lifetime_us, row.tie, row.payload)
            for row in rows
        ]
        endings: list[Ending] = []
        for arrival in arrivals(in_time(given, self._settings.numeric), order):
            endings += order.offer(arrival)
        self._keep(order, timer_ms)
        return _rows(endings)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        """The watermark has passed the time for which the key's timer was set."""
        order, _ = self._load()
        endings = order.advance(1000 * timerValues.getCurrentWatermarkInMs())
        if order.is_idle:
            self._state.clear()
        else:
            self._keep(order, None)
        return _rows(endings)

    @property
    def _settings(self) -> Settings:
        find_shipped()
        from whence.spark.order_rows import Settings

        return Settings(*self._fields)

    def _load(self) -> tuple[CausalOrder, int | None]:
        stored = self._state.get()
        if stored is None:
            return self._settings.order(), None
        return self._settings.order(bytes(stored[0])), stored[1]

    def _keep(self, order: CausalOrder, timer_ms: int | None) -> None:
        """Save the order; a timer must fire as soon as something can happen, or when all is forgotten."""
        next_us = order.next_deadline_us
        if next_us is None and not self._settings.vector:
            next_us = order.forgotten_us
        wanted_ms = None if next_us is None else next_us // 1000 + 1
        if wanted_ms is not None and (timer_ms is None or wanted_ms < timer_ms):
            if timer_ms is not None:
                self._handle.deleteTimer(timer_ms)
            self._handle.registerTimer(wanted_ms)
            timer_ms = wanted_ms
        self._state.update((order.save(), timer_ms))


def _rows(endings: Iterable[Ending]) -> Iterator[Row]:
    return iter(
        [
            Row(
                payload=end.payload,
                outcome=end.outcome,
                missing=end.missing,
                position=end.position,
                epoch_us=end.epoch_us,
            )
            for end in endings
        ]
    )

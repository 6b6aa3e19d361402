"""The orders of many keys in one place, on a worker: rows stay Arrow columns, only what waits is kept.

    bucket = Bucket(settings, schema, maker, saved)
    ended = bucket.step(rows, until_us)  # rows that have ended, with the columns that the order adds
    saved = [bucket.save()]              # or [*saved, bucket.changes()]

The rules are those of `whence.order`: a bucket finds the order of each key, gives it the numbers of its rows
in place of the rows, and moves the rows by `take`. The state of a key is bytes until a row of it arrives or a
deadline of it is over, so keys that rest cost nothing but their bytes. `job` keeps buckets as versions on a
file system, `stream` in Spark's state.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from whence.errors import DataError
from whence.order import CausalOrder, Ending
from whence.spark.ordering.columns import ADDED, KEY, GivenRows, OrderSettings, moved

_LOG_FROM = 1_000  # ids that a key remembers: from here on its changes are saved, and not all of it


class _KeyState(msgspec.Struct, array_like=True):
    """The order of one key as it is saved: as a whole, and then what changed."""

    key: str | None
    wake_us: int | None  # beyond this time something happens without a row
    blobs: list[bytes]  # none: it has ended
    appended: bool = False  # in changes: these blobs come after those that were saved before


class _SavedBucket(msgspec.Struct, array_like=True):
    """A bucket, or what a step has changed of it."""

    maker: str
    serial: int
    newest_us: int
    keys: list[_KeyState]
    ended: list[int]  # in changes: rows that do not wait any more
    serials: bytes  # of `rows`, ascending
    rows: bytes  # that wait, as a stream of Arrow


_encoder, _decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(_SavedBucket)


class StepCounts(msgspec.Struct, frozen=True):
    """What a step did."""

    rows_in: int = 0
    outcomes: dict[str, int] = {}  # of the rows that ended
    unplaced: int = 0  # rows that ended without a position


class Bucket:
    """The orders of some keys.

    `schema` is that of the rows as they are given out; `maker` says what the state was made by, and another
    one is refused.
    """

    def __init__(
        self, settings: OrderSettings, schema: pa.Schema, maker: str, saved: Iterable[bytes] = ()
    ) -> None:
        self._settings, self._schema, self._maker = settings, schema, maker
        self._own = pa.schema([field for field in schema if field.name not in ADDED.names])
        self.newest_us = 0  # the largest time of a row
        self.counts = StepCounts()  # of the last step
        self._serial = 0  # of the next row
        self._keys: dict[str | None, _KeyState] = {}
        self._waiting = self._own.empty_table()
        self._serials = np.zeros(0, np.int64)
        self._touched: dict[str | None, _KeyState] = {}  # since the last save, as they are in changes
        self._ended: list[int] = []
        self._kept_before = 0  # how many of the waiting rows are saved already
        with without_collector():
            for each in saved:
                self._load(_decoder.decode(each))

    @property
    def keys(self) -> int:
        """How many keys have a state."""
        return len(self._keys)

    @property
    def waiting(self) -> int:
        """How many rows wait."""
        return len(self._serials)

    @property
    def wake_us(self) -> int | None:
        """Beyond this time something happens without a row; None: nothing will."""
        return min((each.wake_us for each in self._keys.values() if each.wake_us is not None), default=None)

    def step(self, rows: pa.Table | None, until_us: int) -> pa.Table:
        """Take rows, then note that time has come to `until_us`; returns all rows that end by it."""
        endings: list[Ending] = []
        with without_collector():
            base, fresh = self._serial, self._own.empty_table()
            in_time: list[int] = []
            if rows is not None and rows.num_rows:
                fresh = rows.select(self._own.names).cast(self._own)
                in_time = self._offer(rows, until_us, endings)
            for each in [state for state in self._keys.values() if _is_due(state.wake_us, until_us)]:
                self._keep(each.key, self._order(each.key), until_us, endings)
            outcomes = Counter(end.outcome for end in endings)
            unplaced = sum(end.position is None for end in endings)
            self.counts = StepCounts(len(in_time), outcomes, unplaced)
            return self._move(fresh, in_time, base, endings)

    def _offer(self, rows: pa.Table, until_us: int, endings: list[Ending]) -> list[int]:
        """Give rows to the orders of their keys, numbered in order of time; returns that order."""
        given = GivenRows(rows, self._settings)
        keys = self._settings.column(rows, KEY).to_pylist()
        self.newest_us = max(self.newest_us, given.newest_us)
        by_key: dict[str | None, list[tuple[int, int]]] = {}
        for serial, row in enumerate(given.in_time, self._serial):
            by_key.setdefault(keys[row], []).append((serial, row))
        self._serial += len(keys)
        for key, numbered in by_key.items():
            order = self._order(key)
            for serial, row in numbered:
                endings += order.offer(given.arrival(row, order, serial))
            self._keep(key, order, until_us, endings)
        return given.in_time

    def _order(self, key: str | None) -> CausalOrder:
        known = self._keys.get(key)
        return self._settings.order(known.blobs if known is not None else ())

    def _keep(self, key: str | None, order: CausalOrder, until_us: int, endings: list[Ending]) -> None:
        """Let a key's time pass, and save its order, or end it if nothing is left of it."""
        wake_us = self._wake(order)
        if _is_due(wake_us, until_us):
            endings += order.advance(until_us)
            wake_us = self._wake(order)
        if order.is_idle:
            self._keys.pop(key, None)
            self._touched[key] = _KeyState(key, None, [])
            return
        known = self._keys.get(key)
        is_log = known is not None and order.remembered >= _LOG_FROM
        blob = order.changes() if is_log else order.save()
        if is_log and known is not None and sum(map(len, known.blobs[1:])) + len(blob) < len(known.blobs[0]):
            since = self._touched.get(key)
            added = [*since.blobs, blob] if since is not None else [blob]
            self._touched[key] = _KeyState(key, wake_us, added, since is None or since.appended)
            self._keys[key] = _KeyState(key, wake_us, [*known.blobs, blob])
        else:
            whole = [order.save() if is_log else blob]
            self._touched[key] = self._keys[key] = _KeyState(key, wake_us, whole)

    def _wake(self, order: CausalOrder) -> int | None:
        next_us = order.next_deadline_us
        return order.forgotten_us if next_us is None and not self._settings.vector else next_us

    def _move(
        self, fresh: pa.Table, in_time: Sequence[int], base: int, endings: Sequence[Ending]
    ) -> pa.Table:
        """Take the rows that have ended from those that waited and those that are new."""
        before = len(self._serials)
        serials = np.concatenate([self._serials, np.arange(base, base + len(in_time), dtype=np.int64)])
        places = np.concatenate([np.arange(before), before + np.asarray(in_time, np.int64)])
        rows = pa.concat_tables([self._waiting, fresh])
        at = np.searchsorted(serials, np.fromiter((end.payload for end in endings), np.int64, len(endings)))
        stays = np.ones(len(serials), bool)
        stays[at] = False
        self._ended += serials[: self._kept_before][~stays[: self._kept_before]].tolist()
        self._kept_before = int(stays[: self._kept_before].sum())
        ended = moved(rows, places[at], endings, self._settings, self._schema)
        if len(in_time) or len(at):
            self._waiting, self._serials = rows.take(pa.array(places[stays])), serials[stays]
        return ended

    # Between two batches

    def save(self) -> bytes:
        """All of it."""
        self._begin_changes()
        return self._encoded(list(self._keys.values()), [], 0)

    def changes(self) -> bytes:
        """All that has changed since it was made or saved."""
        touched, ended, first = list(self._touched.values()), self._ended, self._kept_before
        self._begin_changes()
        return self._encoded(touched, ended, first)

    def _begin_changes(self) -> None:
        self._touched, self._ended, self._kept_before = {}, [], len(self._serials)

    def _encoded(self, keys: list[_KeyState], ended: list[int], first: int) -> bytes:
        return _encoder.encode(
            _SavedBucket(
                self._maker,
                self._serial,
                self.newest_us,
                keys,
                ended,
                self._serials[first:].tobytes(),
                to_bytes(self._waiting.slice(first)) if first < len(self._serials) else b"",
            )
        )

    def _load(self, saved: _SavedBucket) -> None:
        if saved.maker != self._maker:
            raise DataError(
                "the state of this stream",
                f"it was made by {saved.maker}, and this is {self._maker}",
                "Give the options that it was begun with, or begin another checkpoint",
            )
        self._serial, self.newest_us = saved.serial, saved.newest_us
        for state in saved.keys:
            if not state.blobs:
                self._keys.pop(state.key, None)
            elif state.appended:
                blobs = [*self._keys[state.key].blobs, *state.blobs]
                self._keys[state.key] = _KeyState(state.key, state.wake_us, blobs)
            else:
                self._keys[state.key] = state
        if saved.ended:
            stays = ~np.isin(self._serials, np.array(saved.ended))
            self._waiting, self._serials = self._waiting.filter(pa.array(stays)), self._serials[stays]
        if saved.rows:
            more = from_bytes(saved.rows).cast(self._own)
            self._waiting = pa.concat_tables([self._waiting, more])
            self._serials = np.concatenate([self._serials, np.frombuffer(saved.serials, np.int64)])
        self._kept_before = len(self._serials)


def _is_due(wake_us: int | None, until_us: int) -> bool:
    return wake_us is not None and wake_us < until_us


@contextmanager
def without_collector() -> Iterator[None]:
    """Python's search for cycles, which orders have none of, would double the time of a step.

    It goes through all that is there when it comes back: whoever can lets go of a bucket before.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def to_bytes(rows: pa.Table) -> bytes:
    """A table as a stream of Arrow."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    found: Any = sink.getvalue()
    return bytes(found.to_pybytes())


def from_bytes(content: Any) -> pa.Table:
    """The table of `to_bytes`."""
    with pa.ipc.open_stream(content) as reader:
        return reader.read_all()

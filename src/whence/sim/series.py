"""The series of a run over an overlay: sums over windows of time (Figures 5a and 5b of paper 003).

Two ways to run (cores and kernel) must give the same series to the last digit, so there are only whole
numbers in it: integrals over time, counts, and for each node a hash of what it delivered and when.
"""

from __future__ import annotations

from msgspec import Struct

from whence.core.message import Message, NodeId
from whence.core.rng import GOLDEN, MASK, mix64
from whence.trace.measures import Value


class WindowSums(Struct, frozen=True, kw_only=True):
    """What happened in [start_us, stop_us).

    `_us` sums are integrals over time in microseconds: divide by `process_us` for the mean of a node.
    """

    start_us: int
    stop_us: int
    process_us: int  # of how many nodes have joined
    expected_us: int  # of all entries in E
    buffered_us: int  # of all entries in buffers
    degree_us: int  # of the sizes of all in-views: the safe degree
    control: int  # α, β, π, ρ received, every hop
    overlay: int  # these and all other packets that are no messages, and the two of each shuffle
    deliveries: int
    receipts: int  # copies of messages that arrived


class RunSeries(Struct, frozen=True, kw_only=True):
    """The windows of a run and its totals."""

    windows: list[WindowSums]
    broadcasts: int
    deliveries: int
    receipts: int
    control: int
    opened: int  # handshakes that were begun
    degree_max: int
    expected_left: int  # entries in E when the run ended
    buffered_left: int
    logs: list[int]  # for each node a hash of what it delivered, when and in which order

    def measures(self) -> dict[str, Value]:
        """Return the windows as columns, and the totals: what `measures.json` keeps."""
        columns = [name for name in WindowSums.__struct_fields__ if name not in ("stop_us", "deliveries")]
        counts: dict[str, Value] = {name: [getattr(each, name) for each in self.windows] for name in columns}
        return counts | {
            "broadcasts": self.broadcasts,
            "deliveries": self.deliveries,
            "opened": self.opened,
            "degree_max": self.degree_max,
            "left": self.expected_left + self.buffered_left,
        }


class Tally:
    """Sums over windows of time, exact: every change of a gauge is followed immediately."""

    def __init__(self, window_us: int, duration_us: int, nodes: int) -> None:
        self.windows: list[WindowSums] = []
        self.expected = self.buffered = self.degree = self.joined = self.degree_max = 0
        self.control = self.overlay = self.deliveries = self.receipts = self.broadcasts = 0
        self._window_us, self._duration_us = window_us, duration_us
        self._held = [(0, 0, 0, False)] * nodes
        self._logs = [0] * nodes
        self._numbers: dict[tuple[NodeId, int], int] = {}  # message -> its number among all of the run
        self._time_us = self._start_us = 0
        self._sums = [0, 0, 0, 0]

    def broadcast(self, origin: NodeId, number: int) -> None:
        """A message is broadcast."""
        self._numbers[origin, number] = self.broadcasts
        self.broadcasts += 1

    def delivered(self, node: int, message: Message, time_us: int) -> None:
        """A node delivers a message: count it and keep the log."""
        self.deliveries += 1
        number = self._numbers[message.origin, message.number]
        self._logs[node] = mix64((self._logs[node] + (number + 1) * GOLDEN + time_us) & MASK)

    def hold(self, node: int, expected: int, buffered: int, degree: int, is_joined: bool) -> None:
        """What a node holds from now on."""
        before = self._held[node]
        self._held[node] = (expected, buffered, degree, is_joined)
        self.expected += expected - before[0]
        self.buffered += buffered - before[1]
        self.degree += degree - before[2]
        self.joined += is_joined - before[3]
        self.degree_max = max(self.degree_max, degree)

    def advance(self, time_us: int) -> None:
        """Time goes on, with everything as it is; windows that are over are closed."""
        time_us = min(time_us, self._duration_us)
        while self._time_us < time_us:
            stop_us = min(self._start_us + self._window_us, self._duration_us)
            until_us = min(time_us, stop_us)
            lasted_us = until_us - self._time_us
            gauges = (self.joined, self.expected, self.buffered, self.degree)
            self._sums = [total + lasted_us * gauge for total, gauge in zip(self._sums, gauges, strict=True)]
            self._time_us = until_us
            if until_us == stop_us:
                self._close(stop_us)

    def series(self, opened: int) -> RunSeries:
        """Return what the run gave, once it is over."""
        self.advance(self._duration_us)
        return RunSeries(
            windows=self.windows,
            broadcasts=self.broadcasts,
            deliveries=sum(each.deliveries for each in self.windows),
            receipts=sum(each.receipts for each in self.windows),
            control=sum(each.control for each in self.windows),
            opened=opened,
            degree_max=self.degree_max,
            expected_left=self.expected,
            buffered_left=self.buffered,
            logs=self._logs,
        )

    def _close(self, stop_us: int) -> None:
        process_us, expected_us, buffered_us, degree_us = self._sums
        self.windows.append(
            WindowSums(
                start_us=self._start_us,
                stop_us=stop_us,
                process_us=process_us,
                expected_us=expected_us,
                buffered_us=buffered_us,
                degree_us=degree_us,
                control=self.control,
                overlay=self.overlay,
                deliveries=self.deliveries,
                receipts=self.receipts,
            )
        )
        self._start_us, self._sums = stop_us, [0, 0, 0, 0]
        self.control = self.overlay = self.deliveries = self.receipts = 0

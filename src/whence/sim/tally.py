"""The sums of an experiment: what all processes hold, integrated over time, window by window."""

from __future__ import annotations

from whence.sim.experiment import Window


class Tally:
    """Sums over windows of time, exact: every change of a gauge is followed at once."""

    def __init__(self, window_us: int, duration_us: int, nodes: int) -> None:
        self.windows: list[Window] = []
        self.expected = self.buffered = self.degree = self.processes = self.degree_max = 0
        self.control = self.deliveries = self.receipts = 0
        self._window_us, self._duration_us = window_us, duration_us
        self._held = [(0, 0, 0, False)] * nodes
        self._time_us = self._start_us = 0
        self._sums = [0, 0, 0, 0]

    def hold(self, node: int, expected: int, buffered: int, degree: int, takes_part: bool) -> None:
        """What a process holds from now on."""
        before = self._held[node]
        self._held[node] = (expected, buffered, degree, takes_part)
        self.expected += expected - before[0]
        self.buffered += buffered - before[1]
        self.degree += degree - before[2]
        self.processes += takes_part - before[3]
        self.degree_max = max(self.degree_max, degree)

    def advance(self, time_us: int) -> None:
        """Time goes on, with everything as it is; windows that are over are closed."""
        while self._time_us < time_us:
            stop_us = min(self._start_us + self._window_us, self._duration_us)
            until_us = min(time_us, stop_us)
            lasted_us = until_us - self._time_us
            gauges = (self.processes, self.expected, self.buffered, self.degree)
            self._sums = [total + lasted_us * gauge for total, gauge in zip(self._sums, gauges, strict=True)]
            self._time_us = until_us
            if until_us == stop_us:
                self._close(stop_us)

    def _close(self, stop_us: int) -> None:
        process_us, expected_us, buffered_us, degree_us = self._sums
        self.windows.append(
            Window(
                start_us=self._start_us,
                stop_us=stop_us,
                process_us=process_us,
                expected_us=expected_us,
                buffered_us=buffered_us,
                degree_us=degree_us,
                control=self.control,
                deliveries=self.deliveries,
                receipts=self.receipts,
            )
        )
        self._start_us, self._sums = stop_us, [0, 0, 0, 0]
        self.control = self.deliveries = self.receipts = 0

"""Paper 003, section 3: the experiment's shape, in the kernel at 100 processes over the full hour."""

from __future__ import annotations

import pytest

from whence.kernels.prc import kernel as prc
from whence.sim.series import RunSeries
from whence.studies.prc.grid import hour
from whence.studies.prc.measures import HOUR_DELAYS, MINUTE_US

NODES = 100
DELAYS = HOUR_DELAYS["text"]


@pytest.fixture(scope="module")
def series() -> RunSeries:
    series = prc.run(hour(NODES)).series
    assert series is not None
    return series


def mean_delay_s(start_us: int, stop_us: int) -> float:
    times = range(start_us + 50_000, stop_us, 100_000)
    return sum(DELAYS.at(at_us) for at_us in times) / len(times) / 1e6


def test_the_delay_is_that_of_the_paper() -> None:
    assert hour(NODES).link.delay == DELAYS
    assert [DELAYS.at(at * MINUTE_US) for at in (0, 15, 40, 60)] == [
        1_000,
        1_000,
        2_500_000,
        2_500_000,
    ]
    assert DELAYS.at(17 * MINUTE_US) == 300_000


def test_e_is_rate_times_delay_times_degree(series: RunSeries) -> None:
    """Figure 5a: with equal delays a copy is awaited for one delay on average, on every link."""
    for window in series.windows[2:50]:
        degree = window.degree_us / window.process_us
        expected = 10 * mean_delay_s(window.start_us, window.stop_us) * degree
        assert window.expected_us / window.process_us == pytest.approx(expected, rel=0.03)


def test_space_is_nothing_before_and_after(series: RunSeries) -> None:
    assert all(window.expected_us == window.buffered_us == 0 for window in series.windows[:2])
    assert all(window.expected_us == window.buffered_us == 0 for window in series.windows[52:])
    assert series.expected_left == series.buffered_left == 0


def test_everybody_delivers_everything_once(series: RunSeries) -> None:
    assert series.broadcasts == 28_800
    assert series.deliveries == 28_800 * NODES


def test_figure_5b_control_traffic_falls_with_delay_and_ends_with_the_shuffles(series: RunSeries) -> None:
    def traffic(first: int, stop: int) -> float:
        return sum(each.control for each in series.windows[first:stop]) / (stop - first) / NODES / 60

    assert 0.5 < traffic(3, 15) < 0.7
    assert traffic(3, 15) > traffic(25, 35) > traffic(40, 50) > 0.3
    assert traffic(52, 60) == 0
    assert series.control == 8 * series.opened  # four messages, two hops each


def test_the_safe_degree_is_about_ten(series: RunSeries) -> None:
    degrees = [window.degree_us / window.process_us for window in series.windows[3:50]]
    assert 9 < sum(degrees) / len(degrees) < 11

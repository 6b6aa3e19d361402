"""The kernel of PRC: the experiment of paper 003 at 10,000 processes and 4 x 10^9 receipts.

    run(scenario).series      # the engine's own series, bit for bit, some thousand times as fast

tests/equivalence/test_prc_kernel.py holds it to the cores. The kernel counts, and keeps no delivery: a trace
that has them is the cores'. With equal delays nothing overtakes, so one ring in the order of sending takes
the place of a heap; a delivery is one entry, however many links it goes over; E is a bit mask of in-link
slots for each message in transit and process; buffers are intervals of a log of what each process delivered
last. Nothing times out, for no process departs.
"""

from __future__ import annotations

import numpy as np

from whence.errors import InvariantError
from whence.kernels.by_place import by_place
from whence.kernels.compile import Array, note_compiled
from whence.kernels.compile import is_compiled as compiled
from whence.kernels.contract import NOTHING, TESTED, Keep, missing, refuse
from whence.kernels.prc import state as a
from whence.kernels.prc.step import advance
from whence.protocols import registry
from whence.sim import links_overlay
from whence.sim.cores import core_params
from whence.sim.distributions import Constant, Ramp
from whence.sim.files import run_id
from whence.sim.links_overlay import join_us, overlay_of
from whence.sim.model import Anyone, Link, Overlay, Scenario, Stop, node_names
from whence.sim.outcome import Outcome
from whence.sim.promises import promises_made
from whence.sim.series import RunSeries, WindowSums
from whence.sim.workload import broadcast_times
from whence.trace.schema import Kind, Level, Recorder

COMPILE_SECONDS = 10.0
NODES_MAX = 1 << 24
DURATION_MAX_US = 1 << (a.LOG_BITS + a.LOG_UNIT_BITS)  # fifty days
_HOPS = 12  # a handshake takes ten delays; its buffers must stand in the log


def refusal(scenario: Scenario, level: Level = Level.MEASURES, keep: Keep = NOTHING) -> str | None:
    """Return why the cores must run a scenario; None if the kernel can."""
    no_kernel = missing(scenario)
    if no_kernel is not None:
        return no_kernel
    params = registry.lookup("prc").parameters | core_params(scenario)
    loads = scenario.workloads
    reasons = (
        (bool(scenario.faults), "processes depart, or their clocks are wrong"),
        (
            len(loads) != 1 or not isinstance(loads[0], Anyone),
            "not just anyone broadcasts, evenly",
        ),
        (params["own_after_echo"] is True, "own messages wait for their echo"),
        (params["timeout_us"] <= 5 * _points(scenario)[-1][1], "handshakes can time out"),
        (_points(scenario)[0][1] < 1, "there is no delay"),
        (scenario.stop.drain, "the run goes on after its end until all is quiet"),
        (scenario.record.sample_every_us is not None, "gauges are sampled"),
        (scenario.nodes >= NODES_MAX, f"there are {NODES_MAX} processes or more"),
        (scenario.stop.duration_us >= DURATION_MAX_US, f"it lasts {DURATION_MAX_US} µs or longer"),
        (level > Level.MEASURES, "the trace is to have every delivery, and the kernel only counts them"),
        (bool(keep), f"it keeps no {', '.join(keep)}"),
    )
    return next((reason for applies, reason in reasons if applies), None)


def _points(scenario: Scenario) -> tuple[tuple[int, int], ...]:
    """Return the delay of all links by the time of sending."""
    delay = scenario.link.delay
    if isinstance(delay, Ramp):
        return delay.points
    assert isinstance(delay, Constant)
    return ((0, delay.value_us),)


def run(
    scenario: Scenario, recorder: Recorder | None = None, level: Level = Level.MEASURES, keep: Keep = NOTHING
) -> Outcome:
    """Run a scenario; with `record.window_us` its outcome has the series."""
    refuse("prc", refusal(scenario, level, keep))
    state = _make_state(scenario)
    while (needed := advance(by_place(state))) != a.DONE:
        if needed == a.BROKEN:
            raise InvariantError("kernel of prc", f"fault {state.counters[a.FAULT]}")
        state = a.grown(state, needed)
    note_compiled(advance)
    if recorder is not None:
        _record(scenario, state, recorder)
    series = _series(scenario, state)
    return Outcome(
        run=run_id(scenario),
        scenario=scenario,
        promises=promises_made(scenario, complete=False),  # a trace without deliveries is not judged
        path="kernel",
        why=TESTED,
        broadcasts=series.broadcasts,
        deliveries=series.deliveries,
        undelivered=series.broadcasts * scenario.nodes - series.deliveries,
        expiries={},
        series=series if scenario.record.window_us is not None else None,
    )


def _record(scenario: Scenario, state: a.PrcArrays, recorder: Recorder) -> None:
    """Tell a recorder the broadcasts: which node makes each is drawn while the run goes on."""
    names, numbers = node_names(scenario.nodes), [0] * scenario.nodes
    payload_bytes = _load(scenario).payload_bytes
    planned = state.externals[state.externals[:, a.E_WHAT] == links_overlay.BROADCAST]
    for time_us, number in planned[:, [a.E_TIME_US, a.E_NUMBER]].tolist():
        node = int(state.senders[number])
        numbers[node] += 1
        recorder.event(names[node], time_us, Kind.BROADCAST, names[node], numbers[node], None, payload_bytes)


def warm_up() -> None:
    """Compile the kernel, or load what is compiled."""
    overlay = Overlay(joins_us=100, shuffle_every_us=200, shuffle_stop_us=800)
    run(
        Scenario(
            nodes=2,
            protocol="prc",
            topology=overlay,
            link=Link(delay=Constant(value_us=10)),
            workloads=[Anyone(interval_us=100, start_us=300, stop_us=500)],
            stop=Stop(duration_us=1_000, drain=False),
        )
    )


def is_compiled() -> bool:
    """Return whether `run` can begin without compiling."""
    return compiled(advance)


def _load(scenario: Scenario) -> Anyone:
    load = scenario.workloads[0]
    assert isinstance(load, Anyone)  # `refusal` has seen to it
    return load


def _window_us(scenario: Scenario) -> int:
    return scenario.record.window_us or scenario.stop.duration_us


def _make_state(scenario: Scenario) -> a.PrcArrays:
    nodes, duration_us, window_us = scenario.nodes, scenario.stop.duration_us, _window_us(scenario)
    externals, messages = _externals(scenario)
    points = _points(scenario)
    buffered = _HOPS * points[-1][1] // _load(scenario).interval_us + 64
    log_size = 1 << int(buffered).bit_length()
    words = 1  # it grows with the hubs
    width = 64 * words
    counters = np.zeros(a.COUNTERS, dtype=np.int64)
    counters[a.MEMBERS] = counters[a.PROCESSES] = 1  # the first process founds the group
    windows = -(-duration_us // window_us)
    return a.PrcArrays(
        settings=np.array(
            [nodes, duration_us, window_us, words, scenario.seed, overlay_of(scenario).sampling == "authors"],
            dtype=np.int64,
        ),
        counters=counters,
        points=np.array(points, dtype=np.int64),
        externals=externals,
        ring=np.zeros((1 << max(10, (log_size + 8 * width).bit_length()), 2), dtype=np.int64),
        people=np.zeros((nodes, a.PEOPLE_COLUMNS), dtype=np.int64),
        hot=np.zeros((nodes, width + a.HOT_PAD), dtype=np.int64),
        cold=np.zeros((nodes, width + a.COLD_PAD, a.COLD_COLUMNS), dtype=np.int64),
        arcs=np.zeros((nodes, width), dtype=np.int32),
        slots=np.zeros((nodes, words), dtype=np.uint64),
        links=np.zeros((max(64, 8 * nodes), a.LINK_COLUMNS), dtype=np.int64),
        rows=np.zeros((16, 3), dtype=np.int64),
        masks=np.zeros((16, words, nodes), dtype=np.uint64),
        row_of=np.full(messages, -1, dtype=np.int32),
        stamps=np.zeros((2, messages), dtype=np.int64),
        senders=np.full(messages, -1, dtype=np.int32),
        log=np.zeros((nodes, log_size + a.LOG_PAD), dtype=np.int64),
        members=np.zeros(nodes, dtype=np.int32),
        free_links=np.zeros(max(64, 8 * nodes), dtype=np.int32),
        free_rows=np.zeros(16, dtype=np.int32),
        windows=np.zeros((windows, a.WINDOW_COLUMNS), dtype=np.int64),
        scratch=np.zeros((4, width), dtype=np.int64),
    )


def _externals(scenario: Scenario) -> tuple[Array, int]:
    """Joins, shuffles and broadcasts in the engine's order, and how many messages there are."""
    overlay, end_us = overlay_of(scenario), scenario.stop.duration_us
    events = []
    for node in range(scenario.nodes):
        at_us = join_us(scenario, node)
        if node:
            events.append(np.array([[at_us, links_overlay.JOIN, node, 0]], dtype=np.int64))
        stop_us = min(overlay.shuffle_stop_us, end_us)
        times = np.arange(at_us, stop_us, overlay.shuffle_every_us, dtype=np.int64)[1:]
        numbers = np.arange(1, len(times) + 1)
        events.append(_table(times, links_overlay.SHUFFLE, np.full(len(times), node), numbers))
    load = _load(scenario)
    stop_us = end_us if load.stop_us is None else min(load.stop_us, end_us)
    times = np.fromiter(broadcast_times(load, 0, stop_us), dtype=np.int64)
    events.append(_table(times, links_overlay.BROADCAST, np.zeros(len(times)), np.arange(len(times))))
    table = np.concatenate(events)
    order = np.lexsort((table[:, 3], table[:, 2], table[:, 1], table[:, 0]))
    return table[order], max(len(times), 1)


def _table(times: Array, what: int, nodes: Array, numbers: Array) -> Array:
    return np.stack([times, np.full(len(times), what), nodes, numbers], axis=1).astype(np.int64)


def _series(scenario: Scenario, state: a.PrcArrays) -> RunSeries:
    window_us, duration_us = _window_us(scenario), scenario.stop.duration_us
    windows = [
        WindowSums(
            start_us=at * window_us,
            stop_us=min((at + 1) * window_us, duration_us),
            process_us=sums[a.W_PROCESS],
            expected_us=sums[a.W_EXPECTED],
            buffered_us=sums[a.W_BUFFERED],
            degree_us=sums[a.W_DEGREE],
            control=sums[a.W_CONTROL],
            overlay=sums[a.W_OVERLAY],
            deliveries=sums[a.W_DELIVERIES],
            receipts=sums[a.W_RECEIPTS],
        )
        for at, sums in enumerate(state.windows.tolist())
    ]
    counters = state.counters.tolist()
    return RunSeries(
        windows=windows,
        broadcasts=counters[a.BROADCASTS],
        deliveries=sum(window.deliveries for window in windows),
        receipts=sum(window.receipts for window in windows),
        control=sum(window.control for window in windows),
        opened=counters[a.OPENED],
        degree_max=counters[a.DEGREE_MAX],
        expected_left=counters[a.EXPECTED],
        buffered_left=counters[a.BUFFERED],
        logs=state.people[:, a.LOG_HASH].astype(np.uint64).tolist(),
    )

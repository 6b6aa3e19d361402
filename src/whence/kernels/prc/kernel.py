"""The kernel of PRC: the experiment of paper 003 at 10,000 processes and 4 x 10^9 receipts.

    series = run(paper(10_000))      # as whence.sim.dynamic.run, bit for bit, some thousand times as fast

`refusal` says why an experiment is outside of what is tested (tests/equivalence/test_prc_kernel.py). With
equal delays nothing overtakes, so one ring in the order of sending takes the place of a heap; a delivery
is one entry, however many links it goes over; E is a bit mask of in-link slots for each message in
transit and process; buffers are intervals of a log of what each process delivered last. Nothing times
out, for no process departs.
"""

from __future__ import annotations

import numpy as np

from whence.errors import InvariantError, MisuseError
from whence.kernels.compile import Array
from whence.kernels.prc import state as a
from whence.kernels.prc.step import advance
from whence.protocols import registry
from whence.sim import dynamic
from whence.sim.experiment import Experiment, Series, Window, checked, join_us

NODES_MAX = 1 << 24
_HOPS = 12  # a handshake takes ten delays; its buffers must stand in the log


def refusal(experiment: Experiment) -> str | None:
    """Why the kernel does not take this experiment; None if it does."""
    longest_us = max(point.delay_us for point in experiment.latency)
    params = registry.lookup("prc").parameters | experiment.params
    reasons = (
        (experiment.protocol != "prc", f"there is no kernel for protocol {experiment.protocol!r}"),
        (bool(experiment.departures), "processes depart"),
        (params["own_after_echo"] is True, "own messages wait for their echo"),
        (params["timeout_us"] <= 5 * longest_us, "handshakes can time out"),
        (experiment.nodes >= NODES_MAX, f"there are {NODES_MAX} processes or more"),
        (experiment.broadcast_start_us < 0, "broadcasts begin before the group"),
    )
    return next((reason for applies, reason in reasons if applies), None)


def run(experiment: Experiment) -> Series:
    """Run an experiment in the kernel."""
    experiment = checked(experiment)
    reason = refusal(experiment)
    if reason is not None:
        raise MisuseError("kernel of prc", f"it cannot run this: {reason}", "Use whence.sim.dynamic.run")
    state = _make_state(experiment)
    while (needed := advance(state)) != a.DONE:
        if needed == a.BROKEN:
            raise InvariantError("kernel of prc", f"fault {state.counters[a.FAULT]}")
        state = a.grown(state, needed)
    return _series(experiment, state)


def _make_state(experiment: Experiment) -> a.State:
    nodes = experiment.nodes
    externals, messages = _externals(experiment)
    longest_us = max(point.delay_us for point in experiment.latency)
    buffered = _HOPS * longest_us // experiment.broadcast_every_us + 64
    log_size = 1 << int(buffered).bit_length()
    words = 1  # it grows with the hubs
    width = 64 * words
    counters = np.zeros(a.COUNTERS, dtype=np.int64)
    counters[a.MEMBERS] = counters[a.PROCESSES] = 1  # the first process founds the group
    windows = -(-experiment.duration_us // experiment.window_us)
    return a.State(
        settings=np.array(
            [nodes, experiment.duration_us, experiment.window_us, words, experiment.seed], dtype=np.int64
        ),
        counters=counters,
        points=np.array([[point.at_us, point.delay_us] for point in experiment.latency], dtype=np.int64),
        externals=externals,
        ring=np.zeros((1 << max(10, (log_size + 8 * width).bit_length()), 2), dtype=np.int64),
        people=np.zeros((nodes, a.PEOPLE_COLUMNS), dtype=np.int64),
        hot=np.zeros((nodes, width, 2), dtype=np.int64),
        cold=np.zeros((nodes, width, 3), dtype=np.int64),
        arcs=np.zeros((nodes, width), dtype=np.int32),
        slots=np.zeros((nodes, words), dtype=np.uint64),
        links=np.zeros((max(64, 8 * nodes), a.LINK_COLUMNS), dtype=np.int64),
        rows=np.zeros((16, 3), dtype=np.int64),
        masks=np.zeros((16, words, nodes), dtype=np.uint64),
        row_of=np.full(messages, -1, dtype=np.int32),
        stamps=np.zeros((2, messages), dtype=np.int64),
        log=np.zeros((nodes, log_size), dtype=np.int32),
        log_us=np.zeros((nodes, log_size), dtype=np.int64),
        members=np.zeros(nodes, dtype=np.int32),
        free_links=np.zeros(max(64, 8 * nodes), dtype=np.int32),
        free_rows=np.zeros(16, dtype=np.int32),
        windows=np.zeros((windows, a.WINDOW_COLUMNS), dtype=np.int64),
        scratch=np.zeros((4, width), dtype=np.int64),
    )


def _externals(experiment: Experiment) -> tuple[Array, int]:
    """Joins, shuffles and broadcasts in the engine's order, and how many messages there are."""
    events = []
    for node in range(experiment.nodes):
        at_us = join_us(experiment, node)
        if node:
            events.append(np.array([[at_us, dynamic.JOIN, node, 0]], dtype=np.int64))
        times = np.arange(at_us, experiment.shuffle_stop_us, experiment.shuffle_every_us, dtype=np.int64)[1:]
        numbers = np.arange(1, len(times) + 1)
        events.append(_table(times, dynamic.SHUFFLE, np.full(len(times), node), numbers))
    times = np.arange(
        experiment.broadcast_start_us,
        experiment.broadcast_stop_us,
        experiment.broadcast_every_us,
        dtype=np.int64,
    )
    events.append(_table(times, dynamic.BROADCAST, np.zeros(len(times)), np.arange(len(times))))
    table = np.concatenate(events)
    order = np.lexsort((table[:, 3], table[:, 2], table[:, 1], table[:, 0]))
    return table[order], max(len(times), 1)


def _table(times: Array, what: int, nodes: Array, numbers: Array) -> Array:
    return np.stack([times, np.full(len(times), what), nodes, numbers], axis=1).astype(np.int64)


def _series(experiment: Experiment, state: a.State) -> Series:
    windows = [
        Window(
            start_us=at * experiment.window_us,
            stop_us=min((at + 1) * experiment.window_us, experiment.duration_us),
            process_us=sums[a.W_PROCESS],
            expected_us=sums[a.W_EXPECTED],
            buffered_us=sums[a.W_BUFFERED],
            degree_us=sums[a.W_DEGREE],
            control=sums[a.W_CONTROL],
            deliveries=sums[a.W_DELIVERIES],
            receipts=sums[a.W_RECEIPTS],
        )
        for at, sums in enumerate(state.windows.tolist())
    ]
    counters = state.counters.tolist()
    return Series(
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

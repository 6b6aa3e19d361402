"""A scenario as the arrays of the kernel of TDCA and ODCA."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from whence.core.rng import GOLDEN, purpose, stream
from whence.kernels import deadline_arrays as a
from whence.kernels.calendar import WIDTH_US
from whence.kernels.compile import Array
from whence.kernels.rng import delay_code
from whence.overlay.graphs import grid_hops
from whence.sim.model import Link, Scenario
from whence.sim.network import path_loss
from whence.sim.workload import sources

BUCKETS = 1 << 13
POOL_MAX = 1 << 26  # numbers that the pool begins with at the most; it grows if they do not suffice

_DELAY, _LOSS, _CONTROL = purpose("link delay"), purpose("link loss"), purpose("control path")


def broadcasts(scenario: Scenario, lifetime_us: int) -> Array:
    """Rows (time_us, node, payload_bytes, lifetime_us) in the order in which the engine has them."""
    rows = sorted(
        (time_us, source.node, source.workload, index, len(source.payloads.of(index)),
         source.lifetimes.of(index) or lifetime_us)
        for source in sources(scenario)
        for index, time_us in enumerate(source.times_us)
    )  # fmt: skip
    return np.array(rows, dtype=np.int64).reshape(-1, 6)[:, [0, 1, 4, 5]]


def make_state(scenario: Scenario, options: Mapping[str, Any], planned: Array, room: int) -> a.State:
    """The state before the first step. `room` is how often as much room there is as a run mostly takes."""
    nodes, count = scenario.nodes, len(planned)
    messages, first, starts = _messages(nodes, planned)
    settings = _settings(scenario, options)
    is_window = settings[a.KEEPS] and not settings[a.EXACT]
    pairs = nodes * count
    packets = room * (pairs * (int(settings[a.COPIES]) + (2 if settings[a.KEEPS] else 0)) + 64)
    pool = room * min(pairs * (nodes + 4 if is_window else 4) + 64, POOL_MAX) if settings[a.KEEPS] else 1
    links, loss = links_of(scenario)
    counters = np.zeros(a.COUNTERS, dtype=np.int64)
    counters[WIDTH_US] = scenario.stop.duration_us // BUCKETS + 1
    at_nodes = np.zeros((nodes, a.NODE_COLUMNS), dtype=np.int64)
    at_nodes[:, [a.ARMED_US, a.FIRES_US]] = a.NEVER_US
    per_pair = (nodes, max(count, 1))
    return a.State(
        settings=settings,
        messages=messages,
        first=first,
        starts=starts,
        after=np.zeros((count, nodes), dtype=np.int64),
        left=np.zeros((count, nodes) if settings[a.DEADLINES] else (1, 1), dtype=np.int64),
        accepted=np.zeros((nodes, nodes), dtype=np.int64),
        frontier=np.zeros((nodes, nodes), dtype=np.int64),
        ends_us=np.zeros((nodes, nodes), dtype=np.int64),
        flags=np.zeros(per_pair, dtype=np.uint8),
        blocker=np.zeros(per_pair, dtype=np.int64),
        asked=np.zeros(per_pair, dtype=np.int64),
        lapse_us=np.full(per_pair if settings[a.DEADLINES] else (1, 1), -a.NEVER_US, dtype=np.int64),
        nodes=at_nodes,
        order=np.zeros(per_pair, dtype=np.int64),
        due=np.empty((nodes, room * (3 * count + nodes + 8)), dtype=np.int64),
        stored=np.empty(per_pair, dtype=np.int64),
        links=links,
        loss=loss,
        packets=np.empty((packets, a.PACKET_COLUMNS), dtype=np.int64),
        heap=np.empty(packets, dtype=np.int64),
        buckets=np.full(BUCKETS + 1, -1, dtype=np.int64),
        pool=np.empty(pool, dtype=np.int64),
        events=np.empty((room * (pairs + count), a.EVENT_COLUMNS), dtype=np.int64),
        chosen=np.empty(max(count, 1), dtype=np.int64),
        question_to=np.empty(2 * count + 1, dtype=np.int64),
        question_for=np.empty(2 * count + 1, dtype=np.int64),
        counters=counters,
    )


def _messages(nodes: int, planned: Array) -> tuple[Array, Array, Array]:
    """The messages by (origin, number), the place of each member's first one, and the order of broadcasts."""
    by_name = np.argsort(planned[:, 1], kind="stable")
    counts = np.bincount(planned[:, 1], minlength=nodes)
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    messages = np.zeros((len(planned), a.MESSAGE_COLUMNS), dtype=np.int64)
    for column, of in ((a.BROADCAST_US, 0), (a.ORIGIN, 1), (a.PAYLOAD_BYTES, 2), (a.LIFETIME_US, 3)):
        messages[:, column] = planned[by_name, of]
    messages[:, a.NUMBER] = np.arange(len(planned)) - first[messages[:, a.ORIGIN]] + 1
    starts = np.empty(len(planned), dtype=np.int64)
    starts[by_name] = np.arange(len(planned))
    return messages, first, starts


def _settings(scenario: Scenario, options: Mapping[str, Any]) -> Array:
    settings = np.zeros(a.SETTINGS, dtype=np.int64)
    stop = scenario.stop
    settings[a.END_US] = stop.duration_us + (stop.drain_max_us if stop.drain else 0)
    settings[a.KEEPS] = scenario.protocol == "odca"
    settings[a.DEADLINES] = options["deadlines"]
    settings[a.COPIES] = options["copies"]
    settings[a.MARGIN_US] = options["margin_us"]
    settings[a.CLOCK_ERROR_US] = options["clock_error_us"]
    settings[a.BUFFER_BYTES] = options["buffer_bytes"]
    if scenario.protocol == "odca":
        settings[a.EXACT] = options["pull"] == "exact"
        settings[a.RETRY_US] = options["retry_us"]
        settings[a.PULLS] = options["pulls"] if options["retry_us"] else 1
        settings[a.REPLY_BYTES] = options["reply_bytes"]
    settings[a.SEPARATE] = scenario.control is not None
    for path, spec in enumerate((scenario.link, scenario.control or scenario.link)):
        code = delay_code(spec.delay)
        if code is not None:  # `refusal` has seen to it
            settings[a.DELAY_KIND + 3 * path : a.DELAY_KIND + 3 * path + 3] = code
    return settings


def links_of(scenario: Scenario) -> tuple[Array, Array]:
    """What `sim/network.py` knows of each link of the common path, and of the control path."""
    nodes = scenario.nodes
    links = np.zeros((2, nodes, nodes, a.LINK_COLUMNS), dtype=np.int64)
    loss = np.zeros((2, nodes, nodes))
    hops = np.array([[grid_hops(nodes, one, other) for other in range(nodes)] for one in range(nodes)])
    paths: list[tuple[Link, int]] = [(scenario.link, scenario.seed)]
    if scenario.control is not None:
        paths.append((scenario.control, stream(scenario.seed, _CONTROL)))
    for path, (spec, seed) in enumerate(paths):
        links[path, :, :, a.DELAY_DRAWS] = keys(seed, _DELAY, nodes).view(np.int64)
        links[path, :, :, a.LOSS_DRAWS] = keys(seed, _LOSS, nodes).view(np.int64)
        links[path, :, :, a.EXTRA_US] = spec.process_us + spec.hop_delay_us * hops
        by_hops = np.array([path_loss(spec, each) for each in range(int(hops.max()) + 1)])
        loss[path] = by_hops[hops]
    return links, loss


def keys(seed: int, what: int, nodes: int) -> Array:
    """`core.rng.stream(seed, what, source, target)` of all links."""
    every = np.arange(nodes, dtype=np.uint64)
    by_source = _mixed((np.uint64(stream(seed, what)) ^ every) + np.uint64(GOLDEN))
    return _mixed((by_source[:, None] ^ every[None, :]) + np.uint64(GOLDEN))


def _mixed(value: Array) -> Array:
    """`core.rng.mix64` of an array."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Array = value ^ (value >> np.uint64(31))
    return mixed

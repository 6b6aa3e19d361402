"""From a scenario to the arrays that VCube's kernel is given."""

from __future__ import annotations

from typing import Any

import numpy as np

from whence.core.rng import purpose, stream
from whence.kernels import vcube_arrays as a
from whence.kernels.calendar import WIDTH_US
from whence.kernels.compile import Array
from whence.kernels.rng import NORMAL, UNIFORM, delay_code
from whence.overlay.hypercube import complete
from whence.protocols.vcube_state import ROOT
from whence.sim.model import Scenario
from whence.sim.workload import sources

_DELAY = purpose("link delay")  # as in sim/network.py
BUCKETS_MAX = 1 << 24
ROOM_MIN = 4096  # rows to begin with, of what grows


def make_state(scenario: Scenario, parameters: dict[str, Any], record: int, trail: bool) -> a.State:
    """Everything before the first step; `parameters` are the protocol's, defaults included."""
    starts, messages = _broadcasts(scenario)
    children = _children(scenario.nodes, ROOT if parameters["tree"] == "single" else -1)
    settings = _settings(scenario, parameters)
    settings[a.REPEATED] = messages[:, a.NUMBER].max(initial=0) > 1
    settings[a.RECORD] = record
    settings[a.TRAIL] = trail
    copies = max(scenario.nodes * len(messages), 1)
    span_us = guess_span_us(settings, starts, children.shape[1] - 1)
    width_us = max(span_us // min(max(copies // 2, 64), BUCKETS_MAX), 1)
    state = a.make_state(
        settings=settings,
        heights=_heights(children[:, :-1], settings[a.ROOT]),
        starts=starts,
        messages=messages,
        links=_links(children, scenario.seed),
        buckets=span_us // width_us + 2,
        room=max(copies // 16, ROOM_MIN),
    )
    state.counters[WIDTH_US] = width_us
    return state


def _broadcasts(scenario: Scenario) -> tuple[Array, Array]:
    """Every broadcast in the engine's order (time, message), and the messages by (origin, number)."""
    found = [
        (time_us, source.node, source.workload, number, len(source.payloads.of(number)))
        for source in sources(scenario)
        for number, time_us in enumerate(source.times_us)
    ]
    found.sort()
    ordered = np.array(found, np.int64).reshape(len(found), 5)
    # A stable sort keeps each node's broadcasts in their order.
    by_message = np.argsort(ordered[:, 1], kind="stable")
    starts = np.empty((len(found), 2), np.int64)
    starts[:, 0] = ordered[:, 0]
    starts[by_message, 1] = np.arange(len(found))
    messages = np.full((len(found), 8), -1, np.int64)
    origins = ordered[by_message, 1]
    messages[:, a.ORIGIN] = origins
    messages[:, a.NUMBER] = np.arange(len(found)) - np.searchsorted(origins, origins) + 1
    messages[:, a.PAYLOAD_BYTES] = ordered[by_message, 4]
    return starts, messages


def _settings(scenario: Scenario, parameters: dict[str, Any]) -> Array:
    link, stop = scenario.link, scenario.stop
    settings = np.zeros(a.SETTINGS, np.int64)
    settings[a.ROOT] = ROOT if parameters["tree"] == "single" else -1
    settings[a.AGGREGATE] = parameters["aggregate"]
    settings[a.BY_WIRE] = parameters["size_model"] == "wire"
    settings[a.MTU_BYTES] = parameters["mtu_bytes"]
    settings[a.SERVICE_US] = link.service_us
    settings[a.PROCESS_US] = link.process_us
    settings[[a.DELAY_KIND, a.DELAY_A, a.DELAY_B]] = delay_code(link.delay) or (0, 0, 0)
    settings[a.END_US] = stop.duration_us + (stop.drain_max_us if stop.drain else 0)
    return settings


def guess_span_us(settings: Array, starts: Array, levels: int) -> int:
    """About how long the run will take: it decides how the calendar is cut, nothing else."""
    delay_us = settings[a.DELAY_A] + settings[a.PROCESS_US] + settings[a.SERVICE_US]
    if settings[a.DELAY_KIND] == UNIFORM:
        delay_us += settings[a.DELAY_B] // 2
    elif settings[a.DELAY_KIND] == NORMAL:
        delay_us += settings[a.DELAY_B]
    # A node sends about as many packets as there are messages; the single tree's root one for each child.
    queued_us = len(starts) * settings[a.SERVICE_US] * (levels if settings[a.ROOT] >= 0 else 1)
    return int(starts[-1, 0] + 2 * (levels + 1) * delay_us + queued_us) if len(starts) else 1


def _children(count: int, root: int) -> Array:
    """By node and level; the last column is the root of the single tree, for all but itself."""
    cube = complete(count)
    table = np.full((count, cube.d + 1), -1, np.int32)
    for node in range(count):
        for level in range(cube.d):
            child = cube.first(node, level + 1)
            if child is not None:
                table[node, level] = child
    if root >= 0:
        table[:, cube.d] = root
        table[root, cube.d] = -1
    return table


def _heights(first: Array, root: int) -> Array:
    """`Cube.height` of every node in the tree of every source, all at once."""
    count, levels = first.shape
    node = np.arange(count, dtype=np.int32)[:, None]
    at = np.broadcast_to(node.T if root < 0 else np.int32(root), (count, count)).copy()
    heights = np.full((count, count), levels, np.int8)
    # The path to a node mends the highest differing bit first: one pass for each bit, from the highest.
    for level in range(levels - 1, -1, -1):
        steps = (at ^ node) >> level == 1
        at[steps] = first[at[steps], level]
        heights[steps] = level
    return heights


def _links(children: Array, seed: int) -> Array:
    """The other end of each link, and the key of its delays."""
    links = np.zeros((*children.shape, 3), np.int64)
    links[:, :, a.CHILD] = children
    for node, slot in zip(*np.nonzero(children >= 0), strict=True):
        key = stream(seed, _DELAY, int(node), int(children[node, slot]))
        links[node, slot, a.DRAWS] = key - (key >> 63 << 64)  # the same 64 bits, with a sign
    return links

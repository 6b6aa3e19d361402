"""Divide a sweep's runs into tasks: the longest first, tiny ones together.

A Spark task costs some 65 ms whatever it does, so runs of a few milliseconds share one. The longest runs
start first, each alone, so that none is left over when the other cores have finished. Only the order of
magnitude of the estimate matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from whence.protocols import registry
from whence.sim import model
from whence.sim.model import Scenario

STEPS_PER_SECOND = 30_000.0
POINT_TO_POINT_HOPS = 3.0  # of a message with one destination
TASK_SECONDS_MAX = 2.0  # of estimated work for runs that share a task
TASK_SECONDS_MIN = 0.2
TASKS_PER_CORE = 4  # enough to even out wrong estimates


def estimate_seconds(scenario: Scenario) -> float:
    """Return roughly how long the cores need for a scenario."""
    first = sum(
        _broadcasts(load, scenario) for load in scenario.workloads if not isinstance(load, model.Replies)
    )
    total = first
    for load in scenario.workloads:
        if isinstance(load, model.Replies):
            fan_out = load.probability * _count(load.senders, scenario.nodes)
            replies = sum(first * fan_out**depth for depth in range(1, min(load.depth, 8) + 1))
            total += min(replies, (load.count or inf) * _count(load.senders, scenario.nodes))
    steps = total * (1 + _packets(scenario))
    return steps / STEPS_PER_SECOND


def _broadcasts(load: model.Workload, scenario: Scenario) -> float:
    if isinstance(load, model.Anyone):
        stop_us = min(load.stop_us or scenario.stop.duration_us, scenario.stop.duration_us)
        return max(0, stop_us - load.start_us) / load.interval_us
    senders = _count(load.senders, scenario.nodes)
    if isinstance(load, model.Window):
        return float(load.count * senders)
    if isinstance(load, model.Replies):
        return 0.0
    stop_us = min(load.stop_us or scenario.stop.duration_us, scenario.stop.duration_us)
    rounds = min(load.count or inf, max(0, stop_us - load.start_us) / load.interval_us)
    return rounds * senders * (load.size if isinstance(load, model.Burst) else 1)


def _packets(scenario: Scenario) -> float:
    """Packets per broadcast: one over each direction of each link, if every node passes it on."""
    nodes, topology = scenario.nodes, scenario.topology
    if registry.lookup(scenario.protocol).point_to_point:
        return POINT_TO_POINT_HOPS
    if scenario.params.get("relay") in (False, "need") or scenario.protocol == "vcube":
        return nodes  # over a tree, at most
    if scenario.protocol in ("tdca", "odca"):  # the origin sends to all, and some ask for it again
        return 2 * nodes
    if isinstance(topology, model.Full):
        return nodes * nodes
    return nodes * (topology.degree if isinstance(topology, model.Random) else 4)


def _count(nodes: model.Nodes, total: int) -> int:
    if isinstance(nodes, int):
        return nodes
    if isinstance(nodes, str):
        return total if nodes == "all" else 1
    return len(nodes)


def tasks_of(seconds: Sequence[float], cores: int) -> list[list[int]]:
    """Indices of runs, task by task, in the order in which the tasks should start."""
    share = sum(seconds) / (TASKS_PER_CORE * max(1, cores))
    enough = min(TASK_SECONDS_MAX, max(TASK_SECONDS_MIN, share))
    tasks: list[list[int]] = []
    filled = inf
    for index in sorted(range(len(seconds)), key=lambda index: (-seconds[index], index)):
        if filled + seconds[index] > enough:
            tasks.append([])
            filled = 0.0
        tasks[-1].append(index)
        filled += seconds[index]
    return tasks

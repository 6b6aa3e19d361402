"""The simulator's links without a protocol: packets in, times of arrival out."""

from __future__ import annotations

from heapq import heappop
from typing import Any

from whence.sim.faults import plan_faults
from whence.sim.files import from_dict
from whence.sim.links import Entry, Traffic
from whence.sim.links_static import make_outlets
from whence.sim.topology import make_graph


class SimulatedLinks:
    """Give it packets, see when they arrive."""

    def __init__(self, nodes: int = 2, **sections: Any) -> None:
        data = {
            "nodes": nodes,
            "protocol": "fifo",
            "workloads": [{"kind": "periodic", "interval_us": 1}],
            "stop": {"duration_us": 1_000},
            **sections,
        }
        self.scenario = from_dict(data)
        self.heap: list[Entry] = []
        self.traffic = Traffic()
        graph = make_graph(self.scenario)
        self.outlets = make_outlets(self.scenario, graph, plan_faults(self.scenario), self.heap, self.traffic)

    def send(
        self, packet: str, now_us: int, *, source: int = 0, to: str = "n1", total_bytes: int = 0
    ) -> None:
        self.outlets[source]((to,), (packet,), now_us, total_bytes)

    def arrivals(self) -> list[tuple[int, str]]:
        """(time, packet) in the order in which the engine would hand them over."""
        found = []
        while self.heap:
            entry = heappop(self.heap)
            found.append((entry[0], entry[5][0]))
        return found


def constant(value_us: int) -> dict[str, Any]:
    return {"kind": "constant", "value_us": value_us}


WIDE = {"kind": "uniform", "low_us": 0, "high_us": 10_000}

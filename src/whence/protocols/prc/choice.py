"""Vector, barrier or PRC: which of them holds least for a workload.

Paper 003 (section 4) says that 100 broadcasts per second would favour the vector, in its group and at its
delay. In general PRC holds copies that are still to come, the others the group, so the frontier is a number
of messages in transit. The laws below are those that `whence study prc` measures (docs/studies-prc.md):

    prc       broadcasts per second x delay x safe degree; Spray's degree is 2 ln N
    vector    1.5 N: its clock, and what changed since the last broadcast, where every node broadcasts
    barrier   N, and what is in transit: a registry of what was delivered, without lifetimes
"""

from __future__ import annotations

from math import inf, log
from typing import NamedTuple

from whence.errors import ParameterError

VECTOR_SHARE = 1.5


class Workload(NamedTuple):
    """What a group does."""

    processes: int
    broadcasts_per_s: float  # of the whole group
    delay_s: float  # of a link
    degree: float | None = None  # links of a process; None: Spray's
    members_known: bool = True  # a vector needs a list of all; barrier and prc do not


class Choice(NamedTuple):
    """What each protocol holds, the smallest first, and the rate at which that changes."""

    best: str
    entries: dict[str, float]  # of control information in a process, by protocol
    even_broadcasts_per_s: float  # up to this rate PRC holds less than each of the others


def choose(workload: Workload) -> Choice:
    """Compare the protocols that fit."""
    processes, rate, delay_s, degree, members_known = workload
    if processes < 2 or rate < 0 or delay_s <= 0 or (degree is not None and degree <= 0):
        raise ParameterError(
            f"workload {tuple(workload)}",
            "there is no such group",
            "Give 2 processes or more, a rate of 0 or more, a delay and a degree above 0",
        )
    degree = min(2 * log(processes), processes - 1) if degree is None else degree
    in_transit = rate * delay_s
    entries = {"prc": in_transit * degree, "barrier": processes + in_transit}
    # Where degree x in_transit = N + in_transit: with one link or none, nowhere.
    even = processes / (degree - 1) if degree > 1 else inf
    if members_known:
        entries["vector"] = VECTOR_SHARE * processes
        even = min(even, entries["vector"] / degree)
    ordered = dict(sorted(entries.items(), key=lambda item: item[1]))
    return Choice(next(iter(ordered)), ordered, even / delay_s)

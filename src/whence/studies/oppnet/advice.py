"""The smallest lifetime that delivers a wanted share in a contact plan, by bisection with runs of the kernel.

The share is taken of what can be delivered at all: the pairs of a message and another node that is in the
network when the message is broadcast, and that co-delivers it if messages live as long as the longest stay of
a node, which for these pairs is as good as for ever. Newcomers are not counted: to how many of them a message
should be handed on is a matter of taste.

A longer lifetime could also deliver less, where contacts are too short for all that is alive; then the share
is not monotone, and bisection finds one lifetime at which it passes the wanted one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np

from whence.kernels.oppnet.kernel import OppnetDetail, run_plan
from whence.kernels.oppnet.state import OppnetSettings
from whence.overlay.contacts import ContactPlan
from whence.trace.measures import Value

PRECISION = 1.02  # a lifetime is found to 2 %
SHORTEST_US = 1_000_000
SHARES_PERCENT = (99, 95, 90)


def smallest_lifetimes(plan: ContactPlan, settings: OppnetSettings, broadcasts: Any) -> dict[str, Value]:
    """`lifetime_<share>_us` for each wanted share, and what the shares are of."""
    longest_us = max(stay.stop_us - stay.start_us for stay in plan.presence)
    found: dict[int, int] = {}

    def reached(lifetime_us: int) -> int:
        if lifetime_us not in found:
            settings_ = replace(settings, lifetime_us=lifetime_us)
            found[lifetime_us] = pairs_reached(plan, run_plan(plan, settings_, broadcasts))
        return found[lifetime_us]

    possible = reached(longest_us)
    counts: dict[str, Value] = {
        "pairs": pairs_present(plan, broadcasts),
        "pairs_possible": possible,
        "longest_us": longest_us,
    }
    for percent in SHARES_PERCENT:
        wanted = -(-possible * percent // 100)
        # What other shares have tried narrows this one.
        high_us = min(lifetime_us for lifetime_us, count in found.items() if count >= wanted)
        below_us = [lifetime_us for lifetime_us in found if lifetime_us < high_us]
        least_us = bisect(reached, wanted, max(below_us, default=SHORTEST_US), high_us)
        counts[f"lifetime_{percent}_us"] = least_us
        counts[f"reached_{percent}"] = reached(least_us)
    return counts | {
        "tried_us": sorted(found),
        "tried_reached": [found[lifetime_us] for lifetime_us in sorted(found)],
    }


def bisect(reached: Callable[[int], int], wanted: int, low_us: int, high_us: int) -> int:
    """The smallest lifetime from `low_us` on that reaches what is wanted, to `PRECISION`; `high_us` does."""
    if high_us <= low_us or reached(low_us) >= wanted:
        return min(low_us, high_us)
    while high_us > low_us * PRECISION + 1:
        middle_us = round(sqrt(low_us * high_us))
        if reached(middle_us) >= wanted:
            high_us = middle_us
        else:
            low_us = middle_us
    return high_us


def pairs_reached(plan: ContactPlan, detail: OppnetDetail) -> int:
    """Pairs of a message and another node that was there at the broadcast, and that co-delivered it."""
    given = ~detail.is_own & (detail.delivered_us >= 0)
    return int(_was_there(plan, detail.node[given], detail.broadcast_us[detail.message[given]]).sum())


def pairs_present(plan: ContactPlan, broadcasts: Any) -> int:
    """All pairs of a message and another node that is there at its broadcast."""
    times_us = np.sort(broadcasts[:, 0])
    stays_us = np.array([(stay.start_us, stay.stop_us) for stay in plan.presence], dtype=np.int64)
    first, last = np.searchsorted(times_us, stays_us[:, 0]), np.searchsorted(times_us, stays_us[:, 1])
    return int((last - first).sum()) - len(times_us)  # its own sender is there


def _was_there(plan: ContactPlan, node: Any, time_us: Any) -> Any:
    """Whether each node was there at each time, by its last entry before."""
    stays = sorted((stay.node, stay.start_us, stay.stop_us) for stay in plan.presence)
    nodes, starts_us, stops_us = np.array(stays, dtype=np.int64).T
    span_us = plan.stop_us + 1  # one axis for all: node after node
    at = np.searchsorted(nodes * span_us + starts_us, node * span_us + time_us, side="right") - 1
    return (at >= 0) & (nodes[at] == node) & (time_us < stops_us[at])

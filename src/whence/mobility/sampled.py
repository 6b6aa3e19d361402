"""Contacts from sampled positions: rows (time, node, x, y), as GPS logs and simulators write them.

Time is cut into steps. Two nodes are in contact in a step if both have a position in it and these are at most
`range_m` apart; of several positions of a node in one step the last counts. A contact lasts from the begin of
its first step to the end of its last; steps up to `gap_us` apart belong together (by default: neighbours
only), so that a larger gap bridges missing samples. A node is present likewise, from its own positions.

This is the work on one piece of time; `whence.spark.contacts` cuts a table into pieces and joins the results.
"""

from __future__ import annotations

import numpy as np

from whence.errors import ContactPlanError
from whence.mobility.kernel import Array, near_pairs
from whence.overlay.contacts import ContactPlan, make_plan

PAIRS_AT_ONCE = 1 << 21  # of pairs in range that are kept before they are joined into intervals


def intervals(
    time_us: Array, node: Array, x: Array, y: Array, range_m: float, step_us: int, gap_us: int | None = None
) -> Array:
    """Rows (a, b, start_us, stop_us), a < b for contacts and a == b for presence, by pair and time.

    `node` are whole numbers from 0. All coordinates must be finite.
    """
    check_measure(range_m, step_us, gap_us)
    slack_us = 0 if gap_us is None else gap_us - step_us
    if not time_us.size:
        return np.zeros((0, 4), dtype=np.int64)
    step = time_us // step_us
    last = _last_of_each(time_us, step, node, x, y)
    step, node, x, y = step[last], node[last].astype(np.int64), x[last], y[last]
    many = int(node.max()) + 1
    here = np.column_stack([node, node, step * step_us, step * step_us + step_us])
    parts = [_merged(here, node, slack_us)]  # by node and step already
    # Bands a little higher than the range: rounding cannot put two nodes in range two bands apart.
    band = np.floor(y / (range_m * (1 + 1e-9)))
    high = band.max() - band.min() + 2
    if high * float(step.max() - step.min() + 1) > 2.0**62:
        raise ContactPlanError("positions", "they are too far apart for that range", "Use a larger range")
    key = (step - step.min()) * int(high) + (band - band.min()).astype(np.int64)
    order = np.lexsort((x, key))
    step, key, node, x, y = step[order], key[order], node[order], x[order], y[order]
    starts = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
    bounds = np.append(starts, key.size)
    room = PAIRS_AT_ONCE
    first = 0  # the band at which to go on
    while first < starts.size:
        found = np.zeros((room, 3), dtype=np.int64)
        after, count = near_pairs(first, bounds, key[starts], step, node, x, y, float(range_m), found)
        if after == first:  # not even one band fits
            room *= 2
            continue
        pairs = found[:count]
        rows = np.column_stack([pairs[:, :2], pairs[:, 2] * step_us, pairs[:, 2] * step_us + step_us])
        parts.append(joined(rows, many, slack_us))
        first = after
    return joined(np.concatenate(parts), many, slack_us)


def joined(rows: Array, many: int, slack_us: int) -> Array:
    """Intervals of each pair, by time, with those joined that are at most `slack_us` apart."""
    if not rows.shape[0]:
        return rows
    pair = rows[:, 0] * many + rows[:, 1]
    order = np.lexsort((rows[:, 2], pair))
    return _merged(rows[order], pair[order], slack_us)


def _merged(rows: Array, pair: Array, slack_us: int) -> Array:
    """As `joined`, for rows in order. Those of one pair come from different steps, so they do not overlap."""
    fresh = np.concatenate([[True], (pair[1:] != pair[:-1]) | (rows[1:, 2] - rows[:-1, 3] > slack_us)])
    begins = np.flatnonzero(fresh)
    ends = np.append(begins[1:], pair.size) - 1
    return np.column_stack([rows[begins, :3], rows[ends, 3]])


def _last_of_each(time_us: Array, step: Array, node: Array, x: Array, y: Array) -> Array:
    """Where the last position of each node in each step is, by node and step; of equal times the greatest."""
    low, span = int(step.min()), int(step.max()) - int(step.min()) + 1
    key = node.astype(np.int64) * span + (step - low)
    order = np.argsort(key, kind="stable")
    same = key[order][1:] == key[order][:-1]
    if same.any():  # rare, and three more sorts
        order = np.lexsort((y, x, time_us, key))
        same = key[order][1:] == key[order][:-1]
    kept: Array = order[np.append(~same, True)]
    return kept


def check_measure(range_m: float, step_us: int, gap_us: int | None) -> None:
    """Raise if range, step and gap cannot be."""
    if not 0 < range_m < float("inf"):
        raise ContactPlanError("range", f"{range_m} m is no radio range", "Give a positive number of metres")
    if step_us < 1:
        raise ContactPlanError("step", f"{step_us} us is not a step", "Give the time between samples")
    if gap_us is not None and gap_us < step_us:
        raise ContactPlanError("gap", f"{gap_us} us is less than a step", "Give at least one step")


def plan_of(names: list[str], rows: Array) -> ContactPlan:
    """The plan of `intervals`; its time 0 is the begin of the first step."""
    if not rows.shape[0]:
        return make_plan(names, (), (), 0)
    begin_us = int(rows[:, 2].min())
    moved = rows - np.array([0, 0, begin_us, begin_us])
    same = moved[:, 0] == moved[:, 1]
    return make_plan(names, moved[~same].tolist(), moved[same][:, 1:].tolist())

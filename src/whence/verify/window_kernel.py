"""The inner loops of the bounded path: a window of each node's events, and pasts of messages in flight only.

As in `kernel.py` there is one source, plain or compiled. Events are numbered as there (node by node); node
i has events `first[i] : end[i]` in memory, at `at[i]` of the pool.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy.typing as npt

from whence.verify import kernel
from whence.verify.kernel import BROADCAST, DELIVERY, UNTIMELY, merge

Array = npt.NDArray[Any]

# Entries of `state`.
TOP, FREE, FOUND = range(3)
STATES = 3
# Why `run_windows` returned.
DONE, NO_ROW, NO_SPACE = range(3)


def mark_part(
    node: int, nodes: int, delivers: Array, ends: Array, message: Array, total: int, to: Array, place: Array,
    row_bits: int, delivered: Array, ended: Array, repeat: Array, again: Array,
) -> None:  # fmt: skip
    """Find second deliveries and second ends among the next events of `node`.

    `delivered` and `ended` have one bit per node and message for everybody, then one per message for one
    node; `place[m]` is the message's place among those of its kind. Where nothing expires they are one table.
    """
    for event in range(message.shape[0]):
        which = message[event]
        if not ends[event] or which >= total:
            continue
        cell = (node if to[which] < 0 else nodes) * row_bits + place[which]
        byte, mask = cell >> 3, 1 << (cell & 7)
        if delivers[event]:
            if delivered[byte] & mask:
                repeat[event] = True
            elif ended[byte] & mask:
                again[event] = True
            delivered[byte] |= mask
        elif ended[byte] & mask:
            again[event] = True
        ended[byte] |= mask


def run_windows(  # noqa: PLR0912, PLR0915 - one loop on purpose: calls would cost more than the work
    state: Array, stack: Array, at: Array, first: Array, end: Array, pool_message: Array, pool_action: Array,
    reached: Array, message_event: Array, message_node: Array, message_rank: Array, message_column: Array,
    own_column: Array, low: int, high: int, first_waiter: Array, next_waiter: Array, keep: bool, slot: Array,
    pending: Array, free: Array, past: Array, known: Array, highest: Array, tally: Array,
    own_past: Array, found_event: Array, found_fifo: Array,
) -> int:  # fmt: skip
    """Advance the nodes on the stack, and all that they wake, to their windows' ends or until they wait.

    `kernel.advance`, `find_disordered` and `find_overtaken` in one, for columns `low` to `high`. The past of
    a message is in row `slot` of `past` from its broadcast until its last delivery (`pending` counts them
    down); with `keep` it stays, in the row of the message's own number. Findings go to `found_event` and
    `found_fifo`, and are counted in `tally`: by column, out of causal order and out of the origin's own.
    """
    width = high - low
    while state[TOP] > 0:
        state[TOP] -= 1
        node = stack[state[TOP]]
        shift = at[node] - first[node]
        row = known[node]
        own = own_column[node] - low
        event = reached[node]
        status = DONE
        while event < end[node]:
            action = pool_action[event + shift]
            which = pool_message[event + shift]
            if action == BROADCAST:
                if keep:
                    past[which] = row
                elif pending[which] > 0:
                    if state[FREE] == 0:
                        status = NO_ROW
                        break
                    state[FREE] -= 1
                    slot[which] = free[state[FREE]]
                    past[slot[which]] = row
                if 0 <= own < width:
                    row[own] = message_rank[which]
                waiter = first_waiter[which]
                first_waiter[which] = -1
                while waiter >= 0:
                    stack[state[TOP]] = waiter
                    state[TOP] += 1
                    waiter = next_waiter[waiter]
            elif action == DELIVERY:
                origin = message_node[which]
                if message_event[which] >= (event if origin == node else reached[origin]):
                    next_waiter[node] = first_waiter[which]
                    first_waiter[which] = node
                    break
                if state[FOUND] + 2 > found_event.shape[0]:
                    status = NO_SPACE
                    break
                before = past[which if keep else slot[which]]
                column = message_column[which] - low
                if 0 <= column < width:
                    rank = message_rank[which]
                    if highest[node, column] > rank:
                        found_event[state[FOUND]] = event
                        found_fifo[state[FOUND]] = True
                        state[FOUND] += 1
                        tally[1, column] += 1
                    else:
                        highest[node, column] = rank
                    if (own_past[node] if column == own else row[column]) >= rank:
                        found_event[state[FOUND]] = event
                        found_fifo[state[FOUND]] = False
                        state[FOUND] += 1
                        tally[0, column] += 1
                    elif row[column] < rank:
                        row[column] = rank
                if 0 <= own < width and before[own] > own_past[node]:
                    own_past[node] = before[own]
                merge(row, before)
                pending[which] -= 1
                if pending[which] == 0 and not keep:
                    free[state[FREE]] = slot[which]
                    state[FREE] += 1
            elif action == UNTIMELY:
                pending[which] -= 1
                if pending[which] == 0 and slot[which] >= 0 and not keep:
                    free[state[FREE]] = slot[which]
                    state[FREE] += 1
            event += 1
        reached[node] = event
        if status != DONE:
            stack[state[TOP]] = node
            state[TOP] += 1
            return status
    return DONE


class WindowKernels(NamedTuple):
    """The loops, compiled or not."""

    mark_part: Callable[..., None]
    run_windows: Callable[..., int]


def plain() -> WindowKernels:
    """The loops as they stand."""
    return WindowKernels(mark_part, run_windows)


@cache
def compiled() -> WindowKernels | None:
    """The loops through numba; None where it is not installed."""
    if kernel.compiled() is None:  # this also teaches numba `merge`
        return None
    return WindowKernels(*map(kernel.through_numba, plain()))

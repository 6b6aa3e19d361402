"""First deliveries of a log, and the order among them: causal and per channel.

Order uses the first delivery of a message in a scope. Two deliveries of a scope are compared by their places
in one context, or, where they are intervals, by one process's clock; so a scope that goes over several
contexts is compared within each.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whence.foreign.graph import Graph, Sends
from whence.foreign.kernels import choose_kernels
from whence.foreign.model import INT64_MAX, NO_RANK, NO_TIME, Array, EventKind, Log

TABLE_BYTES = 512 << 20  # of the table of earliest ends; more scopes are judged in blocks


class FirstDeliveries(NamedTuple):
    """One row per message and scope, by message."""

    event: Array
    message: Array
    column: Array  # the scope, split by context (or process, where deliveries are intervals)
    start: Array  # earliest start ...
    end: Array  # ... and earliest end of its deliveries there
    columns: int
    split: int  # scopes that go over several contexts
    first: Array  # message m has the rows first[m] : first[m + 1]


def first_deliveries(log: Log) -> FirstDeliveries:
    """The deliveries that order is judged on."""
    comparable = (log.pos >= 0) | ((log.t0 != NO_TIME) & log.clocked[log.proc])
    event = np.flatnonzero((log.kind == EventKind.DELIVER) & (log.msg >= 0) & (log.scope >= 0) & comparable)
    placed = log.pos[event] >= 0
    owner = np.where(placed, log.ctx[event], -1 - log.proc[event])
    parts, column = np.unique(np.stack([log.scope[event], owner]), axis=1, return_inverse=True)
    t0, t1 = intervals(log, event)
    start, end = np.where(placed, log.pos[event], t0), np.where(placed, log.pos[event], t1)
    by_message = np.lexsort((event, start, column, log.msg[event]))
    event, column, start, end = event[by_message], column[by_message], start[by_message], end[by_message]
    message = log.msg[event]
    if len(event):
        firsts = np.flatnonzero(np.append(True, (np.diff(message) != 0) | (np.diff(column) != 0)))
        end = np.minimum.reduceat(end, firsts)
        event, message, column, start = event[firsts], message[firsts], column[firsts], start[firsts]
    split = len(parts[0]) - len(np.unique(parts[0])) if len(event) else 0
    first = np.searchsorted(message, np.arange(len(log.msgs) + 1))
    return FirstDeliveries(
        event, message.astype(np.int64), column.astype(np.int64), start, end, parts.shape[1], split, first
    )


def intervals(log: Log, event: Array) -> tuple[Array, Array]:
    """When events began and ended, by the clocks of their processes.

    One that has no end in a log of intervals was not seen to end: nothing is known to come after it. One that
    ends before it begins had its clock set back: it covers all that lies between.
    """
    t0, t1 = log.t0[event], log.t1[event]
    ends = np.where(t1 == NO_TIME, INT64_MAX if log.order == "interval" else t0, t1)
    return np.minimum(t0, ends), np.maximum(t0, ends)


def late_causally(graph: Graph, found: FirstDeliveries, table_bytes: int = TABLE_BYTES) -> Array:
    """Which first deliveries come after one that depends on them ended in the scope."""
    late = np.zeros(len(found.event), dtype=bool)
    if not len(found.event):
        return late
    kernels = choose_kernels(graph.nodes)
    message = np.full(graph.nodes, -1, dtype=np.int64)
    message[graph.message_node] = np.arange(len(graph.message_node))
    width = max(1, min(found.columns, table_bytes // (8 * graph.nodes)))
    table = np.empty((graph.nodes, width), dtype=np.int64)
    for low in range(0, found.columns, width):
        kernels.find_late(
            graph.order, graph.first, graph.to, message, found.first, found.column, found.start, found.end,
            low, table, late,
        )  # fmt: skip
    return late


class ChannelOrder(NamedTuple):
    """Per message, where it stands among the sends of its channel."""

    key: Array  # the channel, split so that all sends of one key can be compared; -1: none
    sent: Array  # place, rank or start of the send ...
    sent_end: Array  # ... and its end
    by_interval: bool
    ordered: Array  # keys with two sends that are ordered


def order_in_channels(log: Log, sends: Sends) -> ChannelOrder:
    """The order of sends: ranks, else places in one context, else intervals of one process."""
    total = len(log.msgs)
    known = sends.event >= 0
    event = np.where(known, sends.event, 0)
    has = len(log) > 0
    pos = log.pos[event] if has else np.zeros(total, np.int64)
    t0, t1 = intervals(log, event) if has else (pos, pos)
    ctx, proc = (log.ctx[event], log.proc[event]) if has else (pos, pos)
    ranked = (sends.rank != NO_RANK) & (sends.channel >= 0)
    placed = known & ~ranked & (pos >= 0)
    timed = known & ~ranked & (pos < 0) & (t0 != NO_TIME)
    if has:
        timed &= log.clocked[proc]
    sort = np.select([ranked, placed, timed], [0, 1, 2], -1)
    owner = np.select([ranked, placed, timed], [np.zeros(total, np.int64), ctx, proc], 0)
    _, key = np.unique(np.stack([sort, sends.channel, owner]), axis=1, return_inverse=True)
    key = np.where(sort >= 0, key, -1)
    sent = np.select([ranked, placed, timed], [sends.rank, pos, t0], 0)
    sent_end = np.select([ranked, placed, timed], [sends.rank, pos, t1], 0)
    keys = int(key.max(initial=-1)) + 1
    earliest, latest = np.full(keys, (1 << 63) - 1), np.full(keys, -(1 << 63))
    np.minimum.at(earliest, key[key >= 0], sent_end[key >= 0])
    np.maximum.at(latest, key[key >= 0], sent[key >= 0])
    return ChannelOrder(key, sent, sent_end, bool(timed.any()), earliest < latest)


def late_in_channel(found: FirstDeliveries, order: ChannelOrder, free: Array) -> tuple[Array, Array]:
    """Which first deliveries come after a later send of their channel, and which could be judged.

    `free[m]`: message m is in no circle.
    """
    key = order.key[found.message]
    judged = (key >= 0) & free[found.message]
    judged[judged] = order.ordered[key[judged]]
    late = np.zeros(len(found.event), dtype=bool)
    at = np.flatnonzero(judged)
    if not len(at):
        return late, judged
    sent = order.sent[found.message]
    at = at[np.lexsort((sent[at], key[at], found.column[at]))]
    new = np.append(True, (np.diff(key[at]) != 0) | (np.diff(found.column[at]) != 0))
    groups = np.append(np.flatnonzero(new), len(at))
    flags = np.zeros(len(at), dtype=bool)
    choose_kernels(len(at)).find_overtaken(
        groups, sent[at], order.sent_end[found.message][at], found.start[at], found.end[at],
        np.zeros(len(at), dtype=np.int64), flags,
    )  # fmt: skip
    late[at] = flags
    return late, judged

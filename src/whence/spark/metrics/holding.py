"""What each node did with each message: when it came and left, and how many waited at once.

A node works in steps: a step is one input (a broadcast, a packet, a link, a timer, a command, a crash) with
all its effects; in the trace, the input's row and the rows behind it. A message is held *after* a step if its
first copy was taken in (received and not discarded) in that step or before, and it was not delivered,
expired or discarded up to that step's end. So what is delivered in the very step in which it arrives is
never held, and the peak is the largest value that the core's own gauge `len(core.explain())` has
between two inputs. A crash does not end the holding: a node comes back with its saved state.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whence.spark.metrics.columns import NEVER, Array, changes, combined
from whence.spark.metrics.unpacked import Events
from whence.trace.schema import Kind

INPUTS = (
    Kind.BROADCAST,
    Kind.RECEIVE,
    Kind.LINK_UP,
    Kind.LINK_DOWN,
    Kind.TIMER,
    Kind.COMMAND,
    Kind.CRASH,
    Kind.RESTART,
)
_IS_INPUT = np.zeros(256, dtype=bool)
_IS_INPUT[list(INPUTS)] = True
# What can happen to a message at a node, as bits, so that all of a step are gathered at once.
_RECEIVED, _DISCARDED, _DELIVERED, _EXPIRED = 1, 2, 4, 8
_BIT = np.zeros(256, dtype=np.uint8)
_BIT[[Kind.RECEIVE, Kind.DISCARD, Kind.DELIVER, Kind.EXPIRE]] = _RECEIVED, _DISCARDED, _DELIVERED, _EXPIRED


class Steps(NamedTuple):
    """The steps of all places, numbered through; events before a place's first input are a step too."""

    of: Array  # the step of each event
    opener: Array  # the event that each step begins with
    first: Array  # the first step of each place


class Messages(NamedTuple):
    """One row for each message at each place where anything happened to it."""

    place: Array
    origin: Array
    number: Array
    received_us: Array  # of the first copy; NEVER if none came
    delivered_us: Array
    arrived: Array  # it was received or delivered there
    entered: Array  # the step in which it was taken in, and ...
    left: Array  # ... the one in which it was delivered, expired or thrown out; NEVER


def steps_of(events: Events) -> Steps:
    """Where the steps of each node begin."""
    opens = _IS_INPUT[events.kind]
    opens[events.first] = True
    of = np.cumsum(opens) - 1
    return Steps(of, np.flatnonzero(opens), of[events.first])


def messages_of(events: Events, steps: Steps) -> Messages:
    """Everything that happened to messages, gathered by message."""
    event, origin, number = _named(events, steps)
    key = combined(events.place[event], origin, number)
    # Stable: what happened to a message stays in the order of the events.
    order = np.lexsort((event, key)) if len(events.further.event) else np.argsort(key, kind="stable")
    event, key = event[order], key[order]
    first = changes(key)
    bit, time_us = _BIT[events.kind[event]], events.time_us[event]
    entered, left = _stay(event, key, bit, events, steps)
    return Messages(
        events.place[event[first]],
        origin[order[first]],
        number[order[first]],
        np.minimum.reduceat(np.where(bit == _RECEIVED, time_us, NEVER), first),
        np.minimum.reduceat(np.where(bit == _DELIVERED, time_us, NEVER), first),
        np.bitwise_or.reduceat(bit, first) & (_RECEIVED | _DELIVERED) > 0,
        entered,
        left,
    )


def _named(events: Events, steps: Steps) -> tuple[Array, Array, Array]:
    """The events that tell of messages, and of which: origin and number."""
    event = np.flatnonzero(_BIT[events.kind])
    origin, number = events.origin[event], events.number[event]
    # A packet can be discarded without its name (it came over a link that is none): then the name is
    # that of the packet which the step began with.
    nameless = np.flatnonzero((origin < 0) & (events.kind[event] == Kind.DISCARD))
    packet = steps.opener[steps.of[event[nameless]]]
    known = events.kind[packet] == Kind.RECEIVE
    origin[nameless[known]] = events.origin[packet[known]]
    number[nameless[known]] = events.number[packet[known]]
    event = np.concatenate((event, events.further.event))
    origin = np.concatenate((origin, events.further.origin))
    number = np.concatenate((number, events.further.number))
    named = origin >= 0
    return event[named], origin[named], number[named]


def _stay(event: Array, key: Array, bit: Array, events: Events, steps: Steps) -> tuple[Array, Array]:
    """The step in which each message was taken in, and the one in which it left."""
    step = steps.of[event]
    bit = np.where(_IS_INPUT[events.kind[steps.opener[step]]], bit, 0)
    first = changes(key, step)
    step, in_step = step[first], np.bitwise_or.reduceat(bit, first)
    received, discarded = in_step & _RECEIVED > 0, in_step & _DISCARDED > 0
    taken = received & ~discarded
    # A discard in the step of its own reception ends a copy; in any other step it ends the held message.
    gone = (in_step & (_DELIVERED | _EXPIRED) > 0) | (discarded & ~received)
    message = changes(key[first])
    return (
        np.minimum.reduceat(np.where(taken, step, NEVER), message),
        np.minimum.reduceat(np.where(gone, step, NEVER), message),
    )


def held_peaks(messages: Messages, steps: Steps) -> Array:
    """For each place the largest number of messages that it held after one step."""
    stays = (messages.entered < NEVER) & (messages.left > messages.entered)
    entered, left = messages.entered[stays], messages.left[stays]
    count = len(steps.opener)
    change = np.bincount(entered, minlength=count) - np.bincount(left[left < NEVER], minlength=count)
    held = np.cumsum(change)
    before = held[steps.first] - change[steps.first]  # what other places still hold at their end
    peaks: Array = np.maximum.reduceat(held, steps.first) - before
    return peaks

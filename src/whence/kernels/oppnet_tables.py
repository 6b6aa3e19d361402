"""The kernel's arrays, made from a contact plan and a list of broadcasts, and made larger on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from whence.core.rng import below, purpose, stream
from whence.kernels import oppnet_arrays as a
from whence.kernels.compile import Array
from whence.kernels.oppnet_heaps import push
from whence.overlay.contacts import ContactPlan
from whence.protocols.carry import ORDER, SETUP

if TYPE_CHECKING:
    from whence.kernels.oppnet import Settings


def make_state(
    plan: ContactPlan,
    settings: Settings,
    broadcasts: Array,
    names: list[str],
    watched: list[int],
    sample_us: int,
    room: int,
) -> a.State:
    """All arrays, with every contact and every broadcast on the heap."""
    count = len(names)
    hashes = [purpose(name) for name in names]
    offsets_us = np.array(settings.offsets_us or [0] * count, dtype=np.int64)
    messages = _messages(broadcasts, settings, offsets_us, count)
    contacts = _contacts(plan, settings, hashes, offsets_us)
    stays, first_stay = _stays(plan)
    degree, together = _crowds(plan, count)
    safe = settings.mode == "safe"
    nodes = np.full((count, a.NODE_COLUMNS), -1, dtype=np.int64)
    nodes[:, a.OFFSET_US] = offsets_us
    nodes[:, a.WAKE_US] = a.NEVER_US
    nodes[:, [a.PENDING, a.BARRIER, a.ACTIVE, a.CHECKED_US]] = 0
    directions = np.full((2 * len(contacts), a.DIRECTION_COLUMNS), a.NEVER_US, dtype=np.int64)
    rows = 2 * together + 2
    queue = _longest_queue(plan, broadcasts, messages, offsets_us) + 1
    state = a.State(
        settings=_settings(plan, settings, sample_us),
        messages=messages,
        contacts=contacts,
        directions=directions,
        nodes=nodes,
        stays=stays,
        first_stay=first_stay,
        hashes=np.array(hashes, dtype=np.uint64),
        keys=_keys(contacts, settings.seed, hashes),
        slots=np.zeros((count, max(len(messages), 1)), dtype=np.int32),
        had=np.zeros((count, len(messages) // a.WORD_BITS + 1), dtype=np.int64),
        newest=np.zeros((count, count), dtype=np.int32),
        until_us=np.zeros((count, count) if safe and watched else (1, 1), dtype=np.int64),
        barriers=np.zeros((count, 64), dtype=np.int32),
        reach=np.zeros(count, dtype=np.int64),
        active=np.zeros((count, degree + 1), dtype=np.int32),
        queue_keys=np.zeros((rows, queue), dtype=np.uint64),
        queue_messages=np.zeros((rows, queue), dtype=np.int32),
        free_rows=np.arange(rows, dtype=np.int64),
        records=np.zeros((max(room, 4 * len(messages)), a.RECORD_COLUMNS), dtype=np.int64),
        pool=np.zeros(4 * room, dtype=np.int32),
        heap=np.zeros((room + 2 * (2 * len(contacts) + len(messages)), a.EVENT_COLUMNS), dtype=np.int64),
        samples=np.zeros((1024 if watched else 0, a.SAMPLE_COLUMNS), dtype=np.int64),
        watched=np.array(watched, dtype=np.int64),
        planned_us=np.full(count, a.NEVER_US, dtype=np.int64),
        counters=np.zeros(a.COUNTERS, dtype=np.int64),
    )
    state.counters[a.ROWS_FREED] = rows
    _begin(state, broadcasts, sample_us)
    return state


def _settings(plan: ContactPlan, settings: Settings, sample_us: int) -> Array:
    values = np.zeros(a.SETTINGS, dtype=np.int64)
    values[a.SAFE] = settings.mode == "safe"
    values[a.TIMED] = settings.lifetime_us is not None
    values[a.SKEW_US] = settings.skew_us
    values[a.GAP_US] = settings.gap_us
    values[a.DELAY_US] = settings.delay_us
    values[a.END_US] = plan.stop_us if settings.end_us is None else settings.end_us
    values[a.SAMPLE_US] = sample_us
    values[a.LATE_US] = settings.late_us
    values[a.RIGHT] = not any(settings.offsets_us)
    return values


def _messages(broadcasts: Array, settings: Settings, offsets_us: Array, count: int) -> Array:
    messages = np.full((len(broadcasts), a.MESSAGE_COLUMNS), -1, dtype=np.int64)
    if not len(broadcasts):
        return messages
    times_us, origins = broadcasts[:, 0], broadcasts[:, 1]
    messages[:, a.ORIGIN] = origins
    numbers = np.zeros(count, dtype=np.int64)
    for at, origin in enumerate(origins.tolist()):
        numbers[origin] += 1
        messages[at, a.NUMBER] = numbers[origin]
    lifetime_us = settings.lifetime_us
    messages[:, a.DEADLINE_US] = (
        a.NEVER_US if lifetime_us is None else times_us + offsets_us[origins] + lifetime_us
    )
    return messages


def _contacts(plan: ContactPlan, settings: Settings, hashes: list[int], offsets_us: Array) -> Array:
    """Contacts that last, with the time at which the lower node says HELLO."""
    rows = []
    for lower, higher, start_us, stop_us in plan.contacts:
        if start_us < stop_us:
            key = stream(settings.seed, SETUP, hashes[lower], hashes[higher])
            begin_us = start_us + int(offsets_us[lower])  # on the lower node's clock
            setup_us = below(key, begin_us, settings.setup_max_us + 1)
            rows.append((lower, higher, stop_us, start_us + setup_us))
    return np.array(rows, dtype=np.int64).reshape(-1, 4)


def _keys(contacts: Array, seed: int, hashes: list[int]) -> Array:
    keys = np.zeros(2 * len(contacts), dtype=np.uint64)
    made: dict[tuple[int, int], int] = {}
    for at, (lower, higher) in enumerate(contacts[:, [a.LOWER, a.HIGHER]].tolist()):
        for direction, pair in ((2 * at, (lower, higher)), (2 * at + 1, (higher, lower))):
            if pair not in made:
                made[pair] = stream(seed, ORDER, hashes[pair[0]], hashes[pair[1]])
            keys[direction] = made[pair]
    return keys


def _stays(plan: ContactPlan) -> tuple[Array, Array]:
    """Presence by node; who stays to the plan's end stays on."""
    by_node: list[list[tuple[int, int]]] = [[] for _ in plan.nodes]
    for node, start_us, stop_us in plan.presence:
        by_node[node].append((start_us, a.NEVER_US if stop_us == plan.stop_us else stop_us))
    first = np.cumsum([0, *map(len, by_node)])
    rows = [stay for stays in by_node for stay in stays]
    return np.array(rows, dtype=np.int64).reshape(-1, 2), first


def _crowds(plan: ContactPlan, count: int) -> tuple[int, int]:
    """The most contacts that one node has at a time, and that all have together."""
    changes = sorted(
        change
        for lower, higher, start_us, stop_us in plan.contacts
        if start_us < stop_us
        for change in ((start_us, 1, lower, higher), (stop_us, 0, lower, higher))
    )
    degrees, degree, now, together = [0] * count, 0, 0, 0
    for _, is_up, lower, higher in changes:
        step = 1 if is_up else -1
        now += step
        for node in (lower, higher):
            degrees[node] += step
        degree = max(degree, degrees[lower], degrees[higher])
        together = max(together, now)
    return degree, together


def _longest_queue(plan: ContactPlan, broadcasts: Array, messages: Array, offsets_us: Array) -> int:
    """At most: the messages that were sent before a contact ends and are alive when it begins."""
    spans_us = [(row.start_us, row.stop_us) for row in plan.contacts if row.start_us < row.stop_us]
    if not len(messages) or not spans_us:
        return 0
    starts_us, stops_us = np.array(spans_us, dtype=np.int64).T
    dead = np.searchsorted(np.sort(messages[:, a.DEADLINE_US]), starts_us + int(offsets_us.min()))
    return int((np.searchsorted(broadcasts[:, 0], stops_us) - dead).max())


def _begin(state: a.State, broadcasts: Array, sample_us: int) -> None:
    delay_us, end_us = int(state.settings[a.DELAY_US]), int(state.settings[a.END_US])
    for at, (lower, higher, stop_us, hello_us) in enumerate(state.contacts.tolist()):
        if hello_us + delay_us < stop_us:
            push(state, hello_us + delay_us, a.RECEIVE, higher, lower, a.HELLO, 2 * at + 1)
            push(state, stop_us, a.LINK_DOWN, lower, higher, 0, at)
    for at, (time_us, node) in enumerate(broadcasts.tolist()):
        if time_us < end_us:
            push(state, time_us, a.BROADCAST, node, 0, at, 0)
    if sample_us:
        push(state, sample_us, a.SAMPLE, 0, 0, 0, 0)


def grown(state: a.State, lacking: int) -> a.State:
    """The same state with twice the room for what has run out of it."""
    name = {
        a.GROW_HEAP: "heap",
        a.GROW_RECORDS: "records",
        a.GROW_POOL: "pool",
        a.GROW_BARRIERS: "barriers",
        a.GROW_SAMPLES: "samples",
    }[lacking]
    old: Array = getattr(state, name)
    axis = 1 if lacking == a.GROW_BARRIERS else 0
    return state._replace(**{name: np.concatenate([old, np.zeros_like(old)], axis=axis)})

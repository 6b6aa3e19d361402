"""Trips that a GTFS feed repeats by headway (`frequencies.txt`): when each of them departs.

Such a trip runs at `start_time`, then every `headway_secs`, and the last time before `end_time`; its own
times in `stop_times.txt` only say how long it takes from stop to stop. Where `exact_times` is not 1 the
operator promises the headway alone; here every departure is taken to be on time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from whence.mobility.gtfs_tables import Feed
from whence.mobility.reading import count

TABLE = "frequencies.txt"
DEPARTURES_MAX = 100_000  # of one feed: more is no timetable but a mistake in a headway


def departures(feed: Feed, known: Collection[str]) -> dict[str, list[int]]:
    """For each trip that is repeated its departures, in seconds after midnight; `known` are all trips."""
    windows: dict[str, list[tuple[int, int]]] = defaultdict(list)
    found: dict[str, list[int]] = defaultdict(list)
    total = 0
    for row in feed.rows(TABLE, ("trip_id", "start_time", "end_time", "headway_secs"), optional=True):
        trip = row["trip_id"]
        if trip not in known:
            raise feed.wrong(TABLE, f"there is no trip {trip!r}", "Correct trips.txt")
        start_s, end_s = feed.clock(row["start_time"]), feed.clock(row["end_time"])
        headway_s = feed.whole(row["headway_secs"])
        if start_s is None or end_s is None or start_s >= end_s:
            raise feed.wrong(TABLE, "its times do not span anything", "Give start_time before end_time")
        if headway_s < 1:
            raise feed.wrong(TABLE, f"a headway of {headway_s} s is none", "Give whole seconds from 1")
        if any(start_s < other_end_s and other_s < end_s for other_s, other_end_s in windows[trip]):
            raise feed.wrong(
                TABLE, f"two headways of trip {trip!r} hold at the same time", "Let the first end before"
            )
        windows[trip].append((start_s, end_s))
        total += len(range(start_s, end_s, headway_s))
        if total > DEPARTURES_MAX:
            raise feed.wrong(
                TABLE, f"it makes more than {DEPARTURES_MAX:,} departures", "Correct headway_secs"
            )
        found[trip] += range(start_s, end_s, headway_s)
    return {trip: sorted(times_s) for trip, times_s in found.items()}


def note_blocks(blocks: Collection[str], left_out: dict[str, int]) -> None:
    """One block cannot be on two runs of a trip at once: repeated trips are chained by place."""
    named = sum(map(bool, blocks))
    if named:
        count(left_out, "blocks of trips that are repeated by headway", named)

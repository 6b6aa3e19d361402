"""Sightings of the Haggle experiments (CRAWDAD cambridge/haggle): `a b start end n gap`, in seconds.

Device a saw device b in each of its scans from `start` to `end`; this is the n-th time, `gap` seconds after
the time before. Each device reports for itself, so a pair's contact is what either saw. A start that equals
the end means one scan (an instant). Files of The ONE made from such experiments are recognised and read.
"""

from __future__ import annotations

from pathlib import Path

from whence.mobility.reading import SECOND_US, Names, Reading, count, nothing, rows_of
from whence.mobility.the_one import read_the_one
from whence.overlay.contacts import make_plan

_FIX = "Lines read: a b start end n gap"


def read_haggle(path: Path | str, *, external: bool = False) -> Reading:
    """Read sightings; the plan's time 0 is the first start that is read.

    Only devices that report sightings of their own took part; others, such as telephones passing by, are
    counted and left out unless `external`.
    """
    path = Path(path)
    left_out: dict[str, int] = {}
    rows: list[tuple[str, str, int, int]] = []
    last = 0
    for line in rows_of(path, left_out):
        last = line.number
        if not rows and line.words[1:2] == ["CONN"]:
            return read_the_one(path)
        if len(line.words) != 6:
            raise line.wrong(f"it has {len(line.words)} columns, not 6", _FIX)
        one, other, start, end, nth, gap = line.words
        start_us, stop_us = line.time_us(start, "start"), line.time_us(end, "end")
        for word, what in ((nth, "count"), (gap, "gap")):
            line.time_us(word, what)
        if stop_us < start_us:
            raise line.wrong(f"it ends at {end}, before it starts at {start}", _FIX)
        if one == other:
            count(left_out, "devices that saw themselves")
        else:
            rows.append((one, other, start_us, stop_us))
    inside = {row[0] for row in rows}
    kept = rows if external else [row for row in rows if row[1] in inside]
    count(left_out, "sightings of devices that took no part", len(rows) - len(kept))
    if not kept:
        raise nothing(path, "sighting")
    names = Names()
    begin_us = min(row[2] for row in kept)
    contacts = [(names.of(a), names.of(b), start - begin_us, stop - begin_us) for a, b, start, stop in kept]
    order, place = names.sorted()
    plan = make_plan(order, ((place[a], place[b], start, stop) for a, b, start, stop in contacts))
    return Reading(plan, str(path), "haggle", last, len(kept), begin_us / SECOND_US, left_out)

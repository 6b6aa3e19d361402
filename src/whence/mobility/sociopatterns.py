"""Face-to-face contacts of SocioPatterns (`tij` files): lines `t i j`, further columns (groups) are ignored.

A line says that badges i and j were in contact during the time slot, usually 20 s, that ends at t. Slots that
follow each other are one contact. t is often a Unix time: the plan's time 0 is the begin of the first slot.
"""

from __future__ import annotations

from pathlib import Path

from whence.mobility.reading import SECOND_US, Names, Reading, nothing, rows_of
from whence.overlay.contacts import make_plan

SLOT_S = 20
_FIX = "Lines read: t i j, with t in whole time slots"


def read_sociopatterns(path: Path | str, *, slot_s: int = SLOT_S) -> Reading:
    """Read a `tij` file."""
    path = Path(path)
    left_out: dict[str, int] = {}
    names = Names()
    slot_us = slot_s * SECOND_US
    rows: list[tuple[int, int, int]] = []
    last = 0
    for line in rows_of(path, left_out):
        last = line.number
        if len(line.words) not in (3, 5):
            raise line.wrong(f"it has {len(line.words)} columns, not 3 (or 5, with groups)", _FIX)
        when, one, other = line.words[:3]
        if one == other:
            raise line.wrong(f"badge {one!r} meets itself", "Leave such lines out")
        at_us = line.time_us(when)
        if rows and (at_us - rows[0][0]) % slot_us:
            raise line.wrong(
                f"its time {when} is not a whole number of {slot_s}-s slots from the first", _FIX
            )
        rows.append((at_us, names.of(one), names.of(other)))
    if not rows:
        raise nothing(path, "contact")
    begin_us = min(row[0] for row in rows) - slot_us
    order, place = names.sorted()
    contacts = ((place[a], place[b], at - begin_us - slot_us, at - begin_us) for at, a, b in rows)
    plan = make_plan(order, contacts)
    return Reading(plan, str(path), "sociopatterns", last, len(rows), begin_us / SECOND_US, left_out)

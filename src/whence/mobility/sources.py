"""One door to all readers: a file in any known format becomes a plan.

reading = read_contacts("contacts.Exp3.dat", "haggle")
reading = read_contacts("city.zip", "gtfs", range_m=200.0)
"""

from __future__ import annotations

from pathlib import Path

from whence.errors import MisuseError
from whence.mobility.readers import Reading
from whence.overlay.contacts import ContactPlan

CONTACT_FORMATS = ("haggle", "sociopatterns", "the-one", "plan")  # they hold contacts
MOVEMENT_FORMATS = ("ns2", "gtfs")  # they hold movements: contacts need a range
FORMATS = (*CONTACT_FORMATS, *MOVEMENT_FORMATS)
RANGE_M = {"ns2": 50.0, "gtfs": 200.0}  # as in paper 001 for walkers and for buses


def read_contacts(
    path: Path | str, format_: str, *, range_m: float | None = None, day: str | None = None
) -> Reading:
    """Read a file of the named format. `range_m` is for movements, `day` (YYYYMMDD) for timetables."""
    if format_ not in FORMATS:
        raise MisuseError(
            f"format {format_!r}", "there is none of that name", f"Choose from: {', '.join(FORMATS)}"
        )
    if range_m is not None and format_ in CONTACT_FORMATS:
        raise MisuseError(
            "range", f"a {format_} file has contacts already, of whatever range", "Leave the range out"
        )
    if day is not None and format_ != "gtfs":
        raise MisuseError("day", f"a {format_} file has no service days", "Leave the day out")
    if format_ in MOVEMENT_FORMATS:
        return _moved(Path(path), format_, range_m if range_m is not None else RANGE_M[format_], day)
    if format_ == "haggle":
        from whence.mobility.readers import read_haggle

        return read_haggle(path)
    if format_ == "sociopatterns":
        from whence.mobility.readers import read_sociopatterns

        return read_sociopatterns(path)
    if format_ == "the-one":
        from whence.mobility.readers import read_the_one

        return read_the_one(path)
    from whence.mobility.plan_io import load_plan

    plan = load_plan(path)
    rows = len(plan.contacts) + len(plan.presence)
    return Reading(plan, str(path), "plan", rows, rows, 0.0)


def _moved(path: Path, format_: str, range_m: float, day: str | None) -> Reading:
    from whence.mobility.paths import contact_plan

    if format_ == "ns2":
        from whence.mobility.ns2 import read_ns2

        moved = read_ns2(path)
        plan = contact_plan(moved.paths, range_m)
        return Reading(plan, str(path), "ns2", moved.lines, moved.rows, 0.0, moved.left_out)
    from whence.mobility.gtfs import read_gtfs

    service = read_gtfs(path, day)
    plan = contact_plan(service.paths, range_m)
    source = f"{path} on {service.day}"
    return Reading(plan, source, "gtfs", service.rows, service.rows, service.begin_s, service.left_out)


def write_contacts(plan: ContactPlan, path: Path | str, format_: str) -> None:
    """Write a plan as `parquet`, `csv` or `one` (The ONE's events, which have no presence)."""
    if format_ == "one":
        from whence.mobility.readers import write_the_one

        write_the_one(plan, path)
    elif format_ in ("parquet", "csv"):
        from whence.mobility.plan_io import save_csv, save_parquet

        (save_csv if format_ == "csv" else save_parquet)(plan, Path(path))
    else:
        raise MisuseError(f"format {format_!r}", "plans are not written so", "Choose: parquet, csv, one")

"""Files of rows for streams, and runs of `whence stream` that are killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from spark.standalone import INTERPRETED
from support.rows import stream
from whence.cli.main import main
from whence.spark.ordering.job import StreamJob

BEGAN = 1_767_225_600  # 2026-01-01, in seconds
UNIT_US = 1000  # what `support.rows` counts, in microseconds here: Spark's watermark knows milliseconds
LIFETIME = "100 ms"
SCHEMA = "room string, id string, after array<string>, at timestamp, text string"
COLUMNS: dict[str, Any] = {
    "key": "room", "id": "id", "depends_on": "after", "event_time": "at", "lifetime": LIFETIME,
    "remember": "1h",
}  # fmt: skip


def job(source: Path, out: Path, **more: Any) -> StreamJob:
    settings: dict[str, Any] = {
        "source": str(source), "out": str(out), "checkpoint": f"{out}.checkpoint", "order": COLUMNS,
        "source_format": "json", "schema": SCHEMA, "source_options": {"maxFilesPerTrigger": "1"},
        "available_now": True, "flush": True,
    }  # fmt: skip
    return StreamJob(**(settings | more))


def results(table: DataFrame) -> list[tuple[str, ...]]:
    names = ("room", "id", "after", "at", "text", "outcome", "missing", "position", "epoch")
    return sorted(tuple(map(str, row)) for row in table.select(*names).collect())


def run_command(line: list[str]) -> int:
    """Run `whence` in this process; its exit code."""
    with pytest.raises(SystemExit) as left:
        main(line)
    return int(left.value.code or 0)


def write_files(
    folder: Path, *, keys: int = 3, rows: int = 60, files: int = 6, form: str = "json", seed: int = 0
) -> list[dict[str, Any]]:
    """Streams of rows, one per key, cut by time into files that Spark reads in order; all rows."""
    folder.mkdir(parents=True, exist_ok=True)
    made = [
        {
            "room": f"room{key}",
            "id": row.id,
            "after": list(row.needs),
            "at": time_text(row.at_us * UNIT_US),
            "text": f'{key} {row.id} \u00e9\u4e16 "quoted", {index}',
        }
        for key in range(keys)
        for index, row in enumerate(stream(100 * seed + key, rows))
    ]
    made.sort(key=lambda row: row["at"])
    size = -(-len(made) // files)
    for at in range(files):
        path = folder / f"part-{at:05d}.{form}"
        part = made[at * size : (at + 1) * size]
        if form == "json":
            text = "".join(json.dumps(row) + "\n" for row in part)
        else:
            quoted = [
                [*map(str, (row["room"], row["id"], "|".join(row["after"]), row["at"]))] for row in part
            ]
            text = "room,id,after,at\n" + "".join(",".join(row) + "\n" for row in quoted)
        path.write_text(text)
        os.utime(path, (BEGAN + at, BEGAN + at))  # Spark takes the oldest first
    return made


def write_rooms(folder: Path, *, files: int, rows: int = 40, lives: int = 5) -> int:
    """A file a second; rooms that last `lives` files and never come again; rows in all.

    Each row needs the one before it in its room; one in ten is lost. After `lives` files all repeats itself
    with other names, so whatever grows is forgotten by nobody.
    """
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    for at in range(files):
        part = []
        for index in range(rows):
            number = (at % lives) * rows + index
            if number % 10 != 3:
                after = [f"{at // lives:03d}-{number - 1:04d}"] if number else []
                moment = time_text(1_000_000 * at + 1_000_000 * index // rows)
                id_ = f"{at // lives:03d}-{number:04d}"
                part.append({"room": f"room{at // lives:03d}", "id": id_, "after": after, "at": moment})
        path = folder / f"part-{at:05d}.json"
        path.write_text("".join(json.dumps(row | {"text": "carried along"}) + "\n" for row in part))
        os.utime(path, (BEGAN + at, BEGAN + at))
        count += len(part)
    return count


def write_batches(folder: Path, *batches: list[dict[str, Any]]) -> None:
    """The given rows, a file for each batch; times are seconds after BEGAN."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, batch in enumerate(batches):
        path = folder / f"{number:05d}.json"
        rows = [
            {"room": "r", "after": [], "text": ""} | row | {"at": time_text(round(1e6 * row["at"]))}
            for row in batch
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(path, (BEGAN + number, BEGAN + number))


def time_text(us: int) -> str:
    """A time after BEGAN, as Spark reads it."""
    seconds, rest = divmod(us, 1_000_000)
    return time.strftime(f"%Y-%m-%dT%H:%M:%S.{rest:06d}Z", time.gmtime(BEGAN + seconds))


def command(source: Path, out: Path, *more: str) -> list[str]:
    """The command line of a query over such files, one file a batch."""
    return [
        sys.executable, "-m", "whence", "stream", str(source), str(out), "--format", "json", "--key", "room",
        "--id", "id", "--depends-on", "after", "--event-time", "at", "--lifetime", LIFETIME,
        "--remember", "1h", "--option", "maxFilesPerTrigger=1", "--available-now", "--flush", "--json", *more,
    ]  # fmt: skip


def run_killed(
    line: list[str],
    kills: int,
    seed: int,
    scratch: Path,
    data_batches: int = 0,
    checkpoint: Path | None = None,
) -> int:
    """Run a command to its end, and on the way kill it and all its children; how often it was killed.

    With `data_batches` the last kill comes when these have been committed: what waits is in the state alone.
    `scratch` takes what a killed Spark cannot clean up.
    """
    draw = random.Random(seed)
    checkpoint = checkpoint or Path(f"{line[5]}.checkpoint")
    scratch.mkdir(parents=True, exist_ok=True)
    # A small heap starts sooner, and this is made of starts: few queries live long enough for compiled code.
    settings = INTERPRETED | {"spark.sql.shuffle.partitions": "2"}
    lines = "".join(f"{name} {value}\n" for name, value in settings.items())
    (scratch / "spark-defaults.conf").write_text(lines)
    places = {
        "TMPDIR": str(scratch),
        "SPARK_LOCAL_DIRS": str(scratch),
        "SPARK_CONF_DIR": str(scratch),
        "SPARK_DRIVER_MEMORY": "1g",
    }
    done = 0
    while True:
        process = subprocess.Popen(
            line,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=os.environ | places,
        )
        if done < kills:
            if data_batches and done == kills - 1:
                await_commit(process, checkpoint, data_batches - 1)
            else:
                batches, folder = draw.randrange(1, 3), draw.choice(["offsets", "commits"])
                _await_batches(process, checkpoint / folder, batches)
                time.sleep(draw.random() * 1.5)  # about a batch: some die in it, some between two
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                done += 1
                continue
        said, errors = process.communicate(timeout=600)
        assert process.returncode == 0, errors.decode()[-2000:]
        assert json.loads(said)["summary"]["batches"] >= 0
        return done


def await_commit(process: subprocess.Popen[bytes], checkpoint: Path, batch: int) -> None:
    """Wait until the query has committed a batch."""
    deadline = time.monotonic() + 240
    while not (checkpoint / "commits" / str(batch)).exists() and process.poll() is None:
        assert time.monotonic() < deadline, f"batch {batch} was not committed"
        time.sleep(0.01)


def _await_batches(process: subprocess.Popen[bytes], folder: Path, more: int) -> None:
    """Wait until the query has planned (offsets) or finished (commits) some batches since it was started."""
    before = len(list(folder.glob("[0-9]*"))) if folder.exists() else 0
    deadline = time.monotonic() + 240
    while process.poll() is None and time.monotonic() < deadline:
        if folder.exists() and len(list(folder.glob("[0-9]*"))) >= before + more:
            return
        time.sleep(0.02)


def check_order(rows: list[Any]) -> int:
    """Assert that positions have no holes and that no row stands before a predecessor; pairs compared."""
    places: dict[str, dict[str, int]] = {}
    for row in rows:
        if row.position is not None:
            assert places.setdefault(row.room, {}).setdefault(row.id, row.position) == row.position
    for by_id in places.values():
        assert sorted(by_id.values()) == list(range(1, len(by_id) + 1))
    pairs = [
        (places[row.room][before], row.position)
        for row in rows
        for before in (row.after if row.position is not None else ())
        if before in places[row.room]
    ]
    assert all(before < after for before, after in pairs)
    return len(pairs)

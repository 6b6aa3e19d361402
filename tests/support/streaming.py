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

from support.rows import stream

BEGAN = 1_767_225_600  # 2026-01-01, in seconds
UNIT_US = 1000  # what `support.rows` counts, in microseconds here: Spark's watermark knows milliseconds
LIFETIME = "100 ms"


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
                [*map(str, (row["room"], row["id"], " ".join(row["after"]), row["at"]))] for row in part
            ]
            text = "room,id,after,at\n" + "".join(",".join(row) + "\n" for row in quoted)
        path.write_text(text)
        os.utime(path, (BEGAN + at, BEGAN + at))  # Spark takes the oldest first
    return made


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


def run_killed(line: list[str], kills: int, seed: int) -> int:
    """Run a command to its end, and on the way kill it and all its children; how often it was killed."""
    draw = random.Random(seed)
    checkpoint = Path(f"{line[5]}.checkpoint")
    done = 0
    while True:
        process = subprocess.Popen(
            line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        if done < kills:
            _await_batches(process, checkpoint, draw.randrange(1, 3))
            time.sleep(draw.random() * 0.5)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                done += 1
                continue
        said, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors.decode()[-2000:]
        assert json.loads(said)["summary"]["batches"] >= 0
        return done


def _await_batches(process: subprocess.Popen[bytes], checkpoint: Path, more: int) -> None:
    """Wait until the query has planned some batches since it was started."""
    folder = checkpoint / "offsets"
    before = len(list(folder.glob("[0-9]*"))) if folder.exists() else 0
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if folder.exists() and len(list(folder.glob("[0-9]*"))) >= before + more:
            return
        time.sleep(0.02)

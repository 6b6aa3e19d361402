"""Figures 8, 9, 11 and 12 of paper 004 on real servers: what is measured at which scale, and how.

Every server is a process with sockets of its own (`domains_live_server`), forked by a nursery
(`domains_live_nursery`). Two servers that are no routers send each other one message at a time; then one
sends to all, and all answer (section 6.1). Systems of all sizes stand side by side and are measured in turns,
so that whatever else the machine does hits all of them alike.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import msgspec

from whence.errors import PlatformError
from whence.studies.domains.live_plan import Batch, Plan, Sample, System, Told
from whence.studies.results import Label, Row

END_WITHIN_S = 10.0


def _systems(
    sizes: Sequence[int], kinds: Sequence[tuple[str, str]], *, all_there: bool = True, durable: bool = False
) -> tuple[System, ...]:
    return tuple(
        System(nodes, organisation, stamps, all_there, durable)
        for nodes in sizes
        for organisation, stamps in kinds
    )


BOTH = (("flat", "full"), ("bus", "full"))
OTHERS = (("daisy", "full"), ("tree", "full"))
UPDATES = (("flat", "updates"), ("bus", "updates"))
PAPER_SIZES = (10, 20, 30, 40, 50, 75, 100, 150)

# With the servers between the ends alone there is no need to stop where 150 processes do.
WAY_FLAT, WAY_BUS = (10, 50, 100, 150, 200, 300, 400), (10, 100, 400, 900, 1600, 2500, 4900)
DURABLE_SIZES = (10, 50, 100, 150)

PLANS = {
    "demo": Plan(
        (
            Batch(_systems((10, 25, 50, 100), BOTH), rounds=7, pings=30, broadcasts=1),
            Batch(
                _systems((10, 50, 100, 200), BOTH[:1], all_there=False)
                + _systems((10, 400, 1600, 3600), BOTH[1:], all_there=False),
                rounds=7,
                pings=20,
            ),
        )
    ),
    "paper": Plan(
        (
            Batch(_systems(PAPER_SIZES, BOTH), rounds=9, pings=100, broadcasts=1),
            Batch(_systems(PAPER_SIZES, OTHERS), rounds=5, pings=100, broadcasts=1),
            Batch(_systems(PAPER_SIZES, UPDATES), rounds=5, pings=100, broadcasts=1),
            Batch(
                _systems(WAY_FLAT, BOTH[:1], all_there=False) + _systems(WAY_BUS, BOTH[1:], all_there=False),
                rounds=5,
                pings=40,
            ),
            Batch(_systems(DURABLE_SIZES, BOTH, all_there=False, durable=True), rounds=5, pings=20),
        )
    ),
    "tiny": Plan((Batch(_systems((4, 9), BOTH), rounds=2, pings=10, broadcasts=1),)),
}


def measure(
    plan: Plan, update: Callable[[int], None] = lambda done: None, folder: Path | None = None
) -> list[Row]:
    """Carry out a plan in processes of its own; `update` hears how many steps are done.

    Durable servers keep their stores in `folder` meanwhile (a file system in memory would not wait for them).
    """
    samples: list[Sample] = []
    with tempfile.TemporaryDirectory(prefix="whence-domains-", dir=folder) as stores, _nursery() as process:
        assert process.stdin is not None  # both were asked for
        assert process.stdout is not None
        process.stdin.write(msgspec.json.encode(msgspec.structs.replace(plan, folder=stores)) + b"\n")
        process.stdin.flush()
        decode = msgspec.json.Decoder(Told).decode
        for line in process.stdout:
            told = decode(line)
            if told.error:
                raise PlatformError("live servers", told.error, "Repeat when the machine has room")
            if told.sample is not None:
                samples.append(told.sample)
            update(told.step)
        if process.wait() != 0:
            raise PlatformError("live servers", f"their parent ended with {process.returncode}", "Repeat")
    return [row_of(sample) for sample in samples]


@contextmanager
def _nursery() -> Iterator[subprocess.Popen[bytes]]:
    """The parent of all servers; it is gone afterwards, and they with it, whatever happens here."""
    process = subprocess.Popen(
        [sys.executable, "-m", "whence.studies.domains.live_processes"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # an interrupt from the terminal is ours: we tell it to stop
    )
    try:
        yield process
    finally:
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            process.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def row_of(sample: Sample) -> Row:
    """A sample as a run of the study; the repetition is the round."""
    system = sample.system
    labels: dict[str, Label] = {
        "part": "live-durable" if system.durable else "live" if system.all_there else "live-way",
        "workload": sample.workload,
        "organisation": system.organisation,
        "stamps": system.stamps,
        "nodes": system.nodes,
        "seed": sample.round,
    }
    per_time = sample.messages / len(sample.wall_ns)
    measures = {
        "wall_us": median(sample.wall_ns) / per_time / 1000,
        "round_us": median(sample.wall_ns) / 1000,
        "cpu_us": sample.cpu_ns / sample.messages / 1000,
        "live_hops": float(len(system.way) - 1) if sample.workload == "ping-pong" else None,
    }
    run = "-".join(str(label) for label in labels.values())
    parameters = {
        **msgspec.to_builtins(system),
        "messages": sample.messages,
        "processes": len(system.running),
    }
    return Row(run, labels, parameters, measures, {})

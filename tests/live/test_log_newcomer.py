"""A newcomer to a million retained messages has them all, in order; time and memory are printed."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from pathlib import Path

import pytest

from live.test_log_live import node
from support.living import free_ports, in_a_loop

MESSAGES = int(os.environ.get("WHENCE_NEWCOMER_MESSAGES", "1000000"))


def peak_mb() -> float:
    """Of this process so far: history, giver and newcomer are all in it."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.mark.slow
@pytest.mark.timeout(7200)
@in_a_loop
async def test_a_newcomer_gets_a_million_messages(tmp_path: Path) -> None:
    ports = free_ports(2)
    async with node("a", ports[0], store=tmp_path / "a.db") as a:
        began_s = time.monotonic()
        for start in range(0, MESSAGES, 2000):
            await asyncio.gather(*(a.broadcast(b"%064d" % (start + at)) for at in range(2000)))
            for _ in range(2000):
                a.done(await a.receive())
        written_s, written_mb = time.monotonic() - began_s, peak_mb()
    began_s = time.monotonic()
    async with node("a", ports[0], store=tmp_path / "a.db"):  # opening does not read the log
        opened_s = time.monotonic() - began_s
        began_s, cpu_s = time.monotonic(), time.process_time()
        async with node("b", ports[1], ports[0], store=tmp_path / "b.db") as b:
            for number in range(MESSAGES):
                message = await b.receive()
                assert message.number == number + 1
                b.done(message)
            took_s, cpu_s = time.monotonic() - began_s, time.process_time() - cpu_s
            log = b.stats().log
    assert log is not None
    assert (log.missed, log.next) == (0, MESSAGES + 1)
    print(
        f"{MESSAGES:,} messages: written in {written_s:.1f} s ({written_mb:.0f} MB), opened in "
        f"{opened_s:.3f} s; "
        f"had by the newcomer in {took_s:.1f} s ({cpu_s / MESSAGES * 1e6:.1f} us CPU each at both ends), "
        f"peak {peak_mb():.0f} MB"
    )
    assert peak_mb() < written_mb + 200

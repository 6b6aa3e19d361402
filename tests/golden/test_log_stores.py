"""The store of a node that remembers, as an earlier release left it when it was killed: opens, goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from golden.files import as_stored, load
from golden.of_log_stores import LONG, joined, opened
from golden.of_stores import unpack
from support.living import free_ports, in_a_loop, take

GOLDEN: dict[str, Any] = load("log-stores")


def test_the_book_has_what_was_written(tmp_path: Path) -> None:
    folder = unpack(GOLDEN["files"], tmp_path)
    for _ in range(2):  # the first opening may have changed its format
        assert as_stored(opened(folder)) == GOLDEN["opened"]
    first, next_, cursor, _ = GOLDEN["opened"]["counts"]
    assert (first, next_, cursor) == (1, LONG + 22, LONG - 7)
    assert len(GOLDEN["opened"]["done"]) == 1


@in_a_loop
async def test_its_next_life_goes_on_where_the_reader_was(tmp_path: Path) -> None:
    ports = free_ports(2)
    async with joined("a", ports[0], unpack(GOLDEN["files"], tmp_path)) as a:
        entries = GOLDEN["opened"]["entries"]
        done = {*GOLDEN["opened"]["done"], *range(GOLDEN["opened"]["counts"][2])}
        unread = [entry[3].encode() for lsn, entry in enumerate(entries, 1) if lsn not in done]
        assert [message.payload for message in await take(a, len(unread))] == unread
        said = await a.broadcast(b"tried again", key=b"second")
        assert str(said) == f"{GOLDEN['opened']['lives'][1]}:1"
        async with joined("b", ports[1], tmp_path, ports[0]) as b:
            assert len(await take(b, LONG + 21)) == LONG + 21

"""A hundred and more things that people get wrong: each is told what, why and what helps, and no traceback.

`COMMANDS` are command lines, `CALLS` calls of the library. Each names words that the message must have: the
thing, and something of the reason or the fix that only this mistake calls for.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import whence
from whence.cli.main import main
from whence.errors import WhenceError
from whence.sim.files import load

SCENARIOS = Path(__file__).parents[2] / "examples" / "scenarios"
SLOW_LINK = SCENARIOS / "slow-link.toml"
EXAMPLES = SCENARIOS.parent

# Files that the lines below find beside them.
FILES: dict[str, str | bytes | None] = {  # None: a folder
    "empty.toml": "",
    "broken.toml": "nodes = [",
    "typo.toml": SLOW_LINK.read_text().replace("seed", "sed", 1),
    "node.toml": 'group = "g"\nnode = "a"\nlisten = "127.0.0.1:7001"\n',
    "badnode.toml": 'group = "g"\nnode = "a"\nlissten = "127.0.0.1:7001"\n',
    "system.toml": 'base_port = 7100\n[[domains]]\nname = "one"\nservers = ["a", "b"]\n',
    "cycle.toml": "base_port = 7100\n"
    + "".join(f'[[domains]]\nname = "{name}"\nservers = {list(name)!r}\n' for name in ("ab", "bc", "ca")),
    "loose.toml": 'base_port = 7100\n[[domains]]\nservers = ["a"]\n[[domains]]\nservers = ["b"]\n',
    "notes.txt": "hello\n",
    "plan.csv": "a,b\n1,2\n",
    "grid.toml": "[grid]\nnodes = []\n",
    "gridtypo.toml": SLOW_LINK.read_text() + "[grid]\nsed = [1, 2]\n",
    "dir.toml": None,
    "latin.toml": "# Grüße\n".encode("latin-1"),
    "json.toml": '{"nodes": 3}',
    "empty.log": "",
    "empty.parquet": "",
    "bigport.toml": 'base_port = 70_000\n[[domains]]\nname = "one"\nservers = ["a", "b"]\n',
    "twice.toml": 'base_port = 7100\n[[domains]]\nname = "one"\nservers = ["a", "a"]\n',
}
ALONE = "--group g --node a --listen 127.0.0.1:7001"

COMMANDS: dict[str, tuple[str, ...]] = {
    # command lines that cannot be read
    "simulat slow.toml": ("simulat", "Did you mean 'simulate'?"),
    "mom upp system.toml": ("upp", "Did you mean 'up'?"),
    "trace": ("Usage",),
    "simulate": ("missing argument", "whence simulate --help"),
    "simulate {slow} --sed 3": ("--sed", "Did you mean '--seed'?"),
    "simulate {slow} --seed three": ("--seed", "three"),
    "simulate {slow} --kernel sometimes": ("--kernel", "sometimes"),
    "simulate {slow} extra": ("extra",),
    "verify --witnesses -1 notes.txt": ("--witnesses", "-1"),
    "tour --scale": ("--scale",),
    "--plugin no_such_module protocols": ("no_such_module", "repair it"),
    # files that are not there, or not what they should be
    "simulate missing.toml": ("missing.toml", "No such file"),
    "simulate empty.toml": ("empty.toml",),
    "simulate broken.toml": ("broken.toml", "TOML"),
    "simulate typo.toml": ("typo.toml", "sed"),
    "simulate notes.txt": ("notes.txt",),
    "simulate .": (".",),
    "simulate {slow} --set nodes=none": ("nodes",),
    "simulate {slow} --set protokoll=x": ("protokoll",),
    "simulate {slow} --set nodes": ("'nodes'", "link.loss=0.1"),
    "simulate {slow} --out notes.txt": ("notes.txt",),
    "verify missing": ("missing",),
    "verify .": (".", "manifest"),
    "verify . --run x": ("manifest",),
    "verify notes.txt": ("notes.txt", "pattern"),
    "verify notes.txt --map nothing": ("nothing",),
    "verify . --memory lots": ("lots", "8G"),
    "verify . --no-spark --blocks 2": ("--blocks", "--no-spark"),
    "replay missing": ("missing",),
    "trace info missing": ("missing",),
    "trace events .": (".",),
    "trace export . out.txt": (".",),
    "view missing": ("missing",),
    "contacts nowhere": ("--range", "50"),
    "contacts plan.csv --format parquet": ("--out",),
    "sweep missing.toml --out here": ("missing.toml",),
    "sweep grid.toml --out here": ("grid.toml",),
    "explore missing.toml": ("missing.toml",),
    "explore {slow}": ("slow-link.toml",),
    "study nothing": ("nothing",),
    "protocols --choose 1 2": ("--choose",),
    "log guess missing.txt": ("missing.txt",),
    # nodes, keys, systems
    "node --config missing.toml": ("missing.toml",),
    "node --config badnode.toml": ("lissten", "listen"),
    "node": ("Usage",),
    "keys init g": ("--nodes",),
    "keys show missing": ("missing",),
    "carry missing.toml": ("missing.toml",),
    "mom up missing.toml": ("missing.toml", "TOML"),
    "mom up broken.toml": ("broken.toml", "TOML"),
    "mom up cycle.toml": ("cycle", "Take one of these servers out"),
    "mom up loose.toml": ("no path", "router"),
    "mom up system.toml --only z": ("'z'", "Use one of: a, b"),
    "mom send system.toml a b x": ("server 'a'", "whence mom up"),
    "mom send system.toml a nobody x": ("nobody", "Use one of"),
    "mom send system.toml a b": ("TEXT", "--file"),
    "mom tail system.toml z": ("'z'",),
    "mom dead list system.toml a": ("server 'a'", "whence mom up"),
    "mom apply system.toml": ("nothing was started", "whence mom up"),
    "mom retire system.toml b": ("'b'", "neighbours"),
    "mom verify system.toml": ("trace", "trace = true"),
    "mom plan missing.parquet": ("missing.parquet", "whence mom traffic"),
    # what a hostile newcomer tried next
    "simulate dir.toml": ("dir.toml", "Is a directory", "a scenario"),
    "simulate latin.toml": ("latin.toml", "Save it as UTF-8"),
    "simulate json.toml": ("json.toml", "line 1", "TOML"),
    "simulate {slow} --seed -1": ("seed", ">= 0"),
    "simulate {slow} --seed 99999999999999999999": ("seed", "9223372036854775807"),
    "simulate {slow} --set nodes=0": ("nodes", ">= 1"),
    "simulate {slow} --set nodes=3_000_000_000": ("nodes", "<= 100000"),
    "simulate {slow} --set link.delay=nan": ("link.delay", "float"),
    "simulate {slow} --set stop.duration_us=-5": ("stop.duration_us",),
    "simulate {slow} --out notes.txt/x": ("notes.txt/x", "Not a directory"),
    "sweep gridtypo.toml --out here": ("gridtypo.toml", "sed"),
    "sweep dir.toml --out here": ("dir.toml", "a grid"),
    "explore dir.toml": ("dir.toml", "Is a directory", "a world"),
    "explore json.toml": ("json.toml", "TOML"),
    "verify empty.log": ("empty.log", "it is empty", "mapping"),
    "verify empty.parquet": ("empty.parquet", "it is empty"),
    "verify /dev/null": ("/dev/null", "no regular file"),
    "verify notes.txt --map dir.toml": ("dir.toml", "kafka"),
    "verify notes.txt --contract order": ("order", "KEY=VALUE"),
    "log guess .": ("it is a folder", "--spark"),
    "log guess empty.log": ("empty.log", "it is empty"),
    "log follow . --once": ("it is a folder", "--spark"),
    "log follow empty.log --once": ("empty.log", "it is empty", "mapping"),
    "log follow plan.csv --every nan": ("--every", "nan"),
    "log skew plan.csv --moments 0": ("--moments", "0"),
    "view empty.log": ("empty.log", "it is empty"),
    "view notes.txt --live": ("notes.txt", "folder"),
    "trace info notes.txt": ("notes.txt", "not a manifest"),
    "contacts walkers --out missing/plan.csv": ("missing", "Make the folder"),
    "contacts walkers --seeds 0": ("--seeds", "0"),
    "emulate {slow}": ("slow-link", "contact plan"),
    "emulate {slow} --speed inf": ("--speed", "inf"),
    "emulate plan.csv --interval nan": ("--interval", "nan"),
    "top missing --every nan": ("--every", "nan"),
    "node --config dir.toml": ("dir.toml", "a node's configuration"),
    f"node {ALONE} --deadline -1": ("--deadline", "-1"),
    f"node {ALONE} --deadline nan": ("--deadline", "nan"),
    f"node {ALONE} --door notes.txt": ("notes.txt", "there is a file of that name"),
    f"node {ALONE} --transport pigeon": ("'pigeon'", "'tcp' or 'udp'"),
    f"node {ALONE} --keys notes.txt": ("notes.txt", "whence keys init"),
    f"node {ALONE} --trace notes.txt": ("notes.txt",),
    "node status --door missing": ("missing", "--door"),
    "carry send hello --socket missing": ("missing", "whence carry run"),
    f"gateway {ALONE} --http 0.0.0.0:7480": ("0.0.0.0:7480", "--token"),
    f"gateway {ALONE} --token empty.log": ("empty.log", "16 characters"),
    f"gateway {ALONE} --origin notes.example": ("'notes.example'", "https://notes.example"),
    f"gateway {ALONE} --static notes.txt": ("notes.txt", "folder"),
    f"gateway {ALONE} --store notes.txt": ("notes.txt",),
    "mom up dir.toml": ("dir.toml", "a description"),
    "mom up bigport.toml": ("base_port", "65535"),
    "mom up twice.toml": ("twice.toml", "Name each server once"),
    "mom plan empty.parquet": ("empty.parquet", "whence mom traffic"),
    "sql select --in missing": ("missing", "whence sweep --tables"),
    "--plugin ../x protocols": ("../x",),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("wrong")
    for name, content in FILES.items():
        if content is None:
            (made / name).mkdir()
        else:
            (made / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return made


def told(line: list[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command line, in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as end:
        main(line)
    return int(end.value.code or 0), out.getvalue(), err.getvalue()


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_line_that_is_wrong(line: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    code, out, err = told(line.format(slow=SLOW_LINK).split())
    text = " ".join((out + err).split())
    assert code == 2, text
    assert "Traceback" not in text
    for word in COMMANDS[line]:
        assert word in text, text
    if "Usage" not in COMMANDS[line]:
        assert re.search(r"error: .+: .+ fix: .{4,}", text), text


def test_the_users_own_file_is_still_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A door in its place would have been its end."""
    monkeypatch.chdir(folder)
    told(f"node {ALONE} --door notes.txt".split())
    assert (folder / "notes.txt").read_text() == FILES["notes.txt"]


def test_a_file_may_begin_with_the_mark_of_utf_8(tmp_path: Path) -> None:
    """Some editors put it there, and nobody sees it."""
    (tmp_path / "marked.toml").write_text(SLOW_LINK.read_text(), encoding="utf-8-sig")
    assert load(tmp_path / "marked.toml") == load(SLOW_LINK)


@pytest.mark.parametrize(
    "line", ["verify missing --json", "simulate x --json", "protocols --choose 1 --json"]
)
def test_errors_under_json_are_json(line: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    code, out, err = told(line.split())
    error = json.loads(out)["error"]
    assert code == 2
    assert set(error) == {"type", "what", "reason", "fix"}
    assert all(error.values())
    assert error["what"] in err


def _join(**given: Any) -> Any:
    return whence.join("g", node="a", **{"listen": "127.0.0.1:7001", **given})


async def _entered(joining: Any) -> None:
    async with joining:
        pass


def _with(joining: Any) -> None:
    with joining:
        pass


async def _awaited(joining: Any) -> None:
    await joining


async def _iterated(joining: Any) -> None:
    async for _ in joining:
        pass


def _asks(ask: Callable[[Any], Any], **given: Any) -> None:
    """Join, and do something with the group."""

    async def work() -> None:
        async with _join(**given) as group:
            await ask(group)

    asyncio.run(work())


def _with_port_in_use() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        asyncio.run(_entered(_join(listen=f"127.0.0.1:{taken.getsockname()[1]}")))


PEERS = {"a": "127.0.0.1:7001", "b": "127.0.0.1:7002"}

CALLS: dict[str, tuple[Callable[[Path], object], tuple[str, ...]]] = {
    "join: a typing error": (lambda _: _join(protocl="vector"), ("'protocl'", "'protocol'")),
    "join: peer for peers": (lambda _: _join(peer=PEERS), ("'peer'", "'peers'")),
    "join: a parameter's": (
        lambda _: _join(protocol="vector", peers=PEERS, relai=True),
        ("'relai'", "'relay'"),
    ),
    "join: no such protocol": (lambda _: _join(protocol="vectr"), ("'vectr'", "'vector'")),
    "join: neither found nor finding": (lambda _: _join(listen=None), ("listen", "contact")),
    "join: no port": (lambda _: _join(listen="127.0.0.1"), ("127.0.0.1", "host:port")),
    "join: not among the peers": (
        lambda _: _join(protocol="vector", peers={"b": "127.0.0.1:7002"}),
        ("'a'", "peers"),
    ),
    "join: peers as a list": (lambda _: _join(protocol="vector", peers=["a", "b"]), ("peers",)),
    "join: one address twice": (
        lambda _: _join(protocol="vector", peers={"a": "127.0.0.1:7001", "b": "127.0.0.1:7001"}),
        ("a, b", "port"),
    ),
    "join: contact under vector": (
        lambda _: _join(protocol="vector", peers=PEERS, contact="127.0.0.1:7002"),
        ("contact", "peers"),
    ),
    "join: another machine without keys": (lambda _: _join(listen="0.0.0.0:7001"), ("0.0.0.0", "keys")),
    "join: no keys there": (lambda path: _join(keys=path / "keys"), ("keys",)),
    "join: a store that is no path": (lambda _: _join(store=7), ("store", "7")),
    "join: a store in no folder": (
        lambda path: asyncio.run(_entered(_join(store=path / "missing" / "a.store"))),
        ("missing", "Make the folder"),
    ),
    "join: a store that is something else": (
        lambda path: asyncio.run(_entered(_join(store=path / "notes.txt"))),
        ("notes.txt",),
    ),
    "join: with": (lambda _: _with(_join()), ("join", "async with")),
    "join: await": (lambda _: asyncio.run(_awaited(_join())), ("join", "async with")),
    "join: async for": (lambda _: asyncio.run(_iterated(_join())), ("join", "async with")),
    "join: a limit of nothing": (
        lambda _: _join(limits=whence.Limits(queue_messages=0)),
        ("queue_messages", "positive"),
    ),
    "join: a lifetime under vector": (
        lambda _: _join(protocol="vector", peers=PEERS, lifetime=1.0),
        ("lifetime",),
    ),
    "join: a number for a node": (lambda _: whence.join("g", node=7, listen="127.0.0.1:7001"), ("node", "7")),
    "join: half a character": (
        lambda _: whence.join("g", node="\ud800", listen="127.0.0.1:7001"),
        ("node", "ud800"),
    ),
    "join: no protocol": (lambda _: _join(protocol=None), ("protocol", "None")),
    "join: a number for a contact": (lambda _: _join(contact=7), ("contact", "7", "host:port")),
    "join: limits as a dict": (lambda _: _join(limits={"queue_messages": 5}), ("limits", "whence.Limits")),
    "join: a trace that is no path": (lambda _: _join(trace=7), ("trace", "7")),
    "join: a store that is a folder": (
        lambda path: asyncio.run(_entered(_join(store=path))),
        ("it is a folder", "should be a file"),
    ),
    "join: a port that is taken": (lambda _: _with_port_in_use(), ("port", "in use", "listen")),
    "join: a codec that there is not": (lambda _: _join(codec="jsn"), ("'jsn'", "'json'")),
    "join: with, and a codec": (lambda _: _with(_join(codec="json")), ("join", "async with")),
    "join: await, and a codec": (
        lambda _: asyncio.run(_awaited(_join(codec="json"))),
        ("join", "async with"),
    ),
    "join: used before it is entered": (lambda _: _join().broadcast(b"x"), ("'broadcast'", "async with")),
    "sync_join: used before it is entered": (
        lambda _: whence.sync_join("g", node="a", listen="127.0.0.1:7001").receive(),
        ("'receive'", "with whence.sync_join"),
    ),
    "broadcast: a text": (lambda _: _asks(lambda group: group.broadcast("x")), ("str", "encode")),
    "broadcast: a timeout that is no number": (
        lambda _: _asks(lambda group: group.broadcast(b"x", timeout=float("nan"))),
        ("timeout", "nan"),
    ),
    "broadcast: no such way to wait": (
        lambda _: _asks(lambda group: group.broadcast(b"x", on_full="drop")),
        ("on_full", "'drop'"),
    ),
    "broadcast: fewer copies than none": (
        lambda _: _asks(lambda group: group.broadcast(b"x", copies=-1)),
        ("copies", "-1"),
    ),
    "broadcast: a deadline in the past": (
        lambda _: _asks(lambda group: group.broadcast(b"x", deadline=-1)),
        ("deadline", "-1"),
    ),
    "ask: without a codec": (lambda _: _asks(lambda group: group.ask("b", b"x")), ("ask", "codec")),
    "retire: where nobody counts": (lambda _: _asks(lambda group: group.retire("b")), ("'b'", "stability")),
    "scenario: none": (lambda path: load(path / "missing.toml"), ("missing.toml",)),
    "scenario: a typing error": (lambda path: load(path / "typo.toml"), ("sed",)),
}


@pytest.mark.parametrize("what", CALLS)
def test_a_call_that_is_wrong(what: str, folder: Path) -> None:
    call, words = CALLS[what]
    with pytest.raises(WhenceError) as caught:
        call(folder)
    error = caught.value
    assert error.what
    assert error.reason
    assert len(error.fix) > 3
    for word in words:
        assert word in str(error), str(error)


def test_there_are_sixty() -> None:
    assert len(COMMANDS) + len(CALLS) >= 60 + 40

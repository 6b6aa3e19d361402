"""Sixty and more things that people get wrong: each is told what, why and what helps, and never a traceback.

`COMMANDS` are command lines, `CALLS` calls of the library. Each names words that the message must have: the
thing, and something of the reason or the fix that only this mistake calls for.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
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
FILES = {
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
}

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
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("wrong")
    for name, text in FILES.items():
        (made / name).write_text(text)
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
    assert len(COMMANDS) + len(CALLS) >= 60

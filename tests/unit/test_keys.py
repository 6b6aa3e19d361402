"""`whence keys`: files, modes, what is in the certificates, what is refused; and the page's commands run."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from support.keyring import issue, keys_for
from whence.cli import main as cli
from whence.errors import KeysError, ParameterError
from whence.live import authority
from whence.live.tls import Keys

PAGE = Path(__file__).parents[2] / "docs" / "security.md"


def run(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main([str(each) for each in arguments])
    code = ended.value.code
    return code if isinstance(code, int) else int(bool(code))


def test_init_writes_one_pair_for_each_and_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "keys"
    assert run("keys", "init", "room", "--nodes", "alice, bob", "--out", folder) == 0
    told = capsys.readouterr().out.split()
    names = [f"{who}.{kind}" for who in ("ca", "alice", "bob") for kind in ("pem", "key")]
    assert told == [str(folder / name) for name in names]
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    for path in folder.glob("*.key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    for node in ("alice", "bob"):
        Keys(folder, "room", node)  # as a node does, with the standard library alone


def test_a_key_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        keys_for(tmp_path / "keys", "alice")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "keys" / "alice.key").stat().st_mode) == 0o600


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = keys_for(tmp_path / "keys", "alice")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert run("keys", "init", "room", "--nodes", "bob", "--out", folder) == 2
    assert "never overwritten" in capsys.readouterr().err
    assert run("keys", "add", folder, "bob", "alice") == 2
    assert "alice.pem" in capsys.readouterr().err
    (folder / "carol.key").write_text("mine")
    assert run("keys", "add", folder, "carol") == 2
    assert {path: path.read_bytes() for path in before} == before
    assert not (folder / "bob.pem").exists()
    assert (folder / "carol.key").read_text() == "mine"


def test_add_is_by_the_same_authority(tmp_path: Path) -> None:
    folder = keys_for(tmp_path / "keys", "alice")
    assert run("keys", "add", folder, "bob", "ö/x", "ca", "ö" * 255, "--days", "7") == 0
    for node in ("bob", "ö/x", "ca", "ö" * 255):
        Keys(folder, "room", node)
    shown = {each.node: each for each in authority.show(folder)}
    assert set(shown) == {None, "alice", "bob", "ö/x", "ca", "ö" * 255}
    assert all(each.problem is None and each.has_key for each in shown.values())
    week = shown["bob"].until - datetime.now(UTC)
    assert timedelta(days=6, hours=23) < week <= timedelta(days=7)


def test_no_certificate_outlives_the_authority(tmp_path: Path) -> None:
    folder = keys_for(tmp_path / "keys", "alice")
    authority.add_nodes(folder, ["bob"], days=36_500)
    shown = {each.node: each for each in authority.show(folder)}
    assert shown["bob"].until <= shown[None].until + timedelta(seconds=1)


def test_show_for_machines_and_its_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = keys_for(tmp_path / "keys", "alice", "bob")
    assert run("keys", "show", folder, "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert [each["node"] for each in shown] == [None, "alice", "bob"]
    assert {each["group"] for each in shown} == {"room"}
    assert [each["days_left"] for each in shown] == [3649, 364, 364]
    assert len({each["sha256"] for each in shown}) == 3
    assert all(re.fullmatch(r"([0-9a-f]{2}:){31}[0-9a-f]{2}", each["sha256"]) for each in shown)
    issue(folder, "bob", "room", "bob", timedelta(minutes=-1))
    assert run("keys", "show", folder) == 1
    assert "expired" in capsys.readouterr().out
    other = keys_for(tmp_path / "other", "carol")
    (folder / "carol.pem").write_bytes((other / "carol.pem").read_bytes())
    assert run("keys", "show", folder, "--json") == 1
    [carol] = [each for each in json.loads(capsys.readouterr().out) if each["node"] == "carol"]
    assert carol["problem"] == "made by another authority"
    assert carol["key_here"] is False


@pytest.mark.parametrize(
    ("nodes", "days", "words"),
    [
        (["alice", "alice"], 1, "named twice"),
        ([""], 1, "1 to 255 characters"),
        (["x" * 256], 1, "1 to 255 characters"),
        (["alice"], 0, "not from 1 to"),
        (["alice"], 10**6, "not from 1 to"),
    ],
)
def test_misuse_is_refused_before_anything_is_written(
    tmp_path: Path, nodes: list[str], days: int, words: str
) -> None:
    with pytest.raises(ParameterError, match=words):
        authority.make_group(tmp_path / "keys", "room", nodes, days)
    assert not (tmp_path / "keys").exists()


def test_folders_that_are_no_good(tmp_path: Path) -> None:
    with pytest.raises(KeysError, match="No such file"):
        authority.add_nodes(tmp_path, ["alice"])
    with pytest.raises(KeysError, match="No such file"):
        authority.show(tmp_path)
    folder = keys_for(tmp_path / "keys", "alice")
    other = keys_for(tmp_path / "other", "alice")
    (folder / "ca.pem").write_bytes((other / "ca.pem").read_bytes())
    with pytest.raises(KeysError, match="not the key of"):
        authority.add_nodes(folder, ["bob"])
    (folder / "ca.key").write_text("nonsense")
    with pytest.raises(KeysError, match="no key that can be used"):
        authority.add_nodes(folder, ["bob"])
    (folder / "ca.pem").write_text("nonsense")
    with pytest.raises(KeysError, match="no certificate"):
        authority.show(folder)


def test_a_node_needs_no_cryptography(tmp_path: Path) -> None:
    """Only `whence keys` does; and without it the error names the extra."""
    folder = keys_for(tmp_path / "keys", "alice")
    code = (
        "import sys; sys.modules['cryptography'] = None\n"
        "import whence\n"
        f"whence.join('room', node='alice', peers={{'alice': '192.0.2.1:7001'}}, keys={str(folder)!r})\n"
        "from whence.cli.main import main\n"
        f"main(['keys', 'show', {str(folder)!r}])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "pip install 'whence[tls]'" in done.stderr


@pytest.mark.timeout(300)
def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    script = f'whence() {{ "{sys.executable}" -m whence "$@"; }}\nset -e\n' + "".join(blocks)
    done = subprocess.run(
        ["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "whence://" not in done.stderr
    for node in ("alice", "bob", "carol"):
        Keys(tmp_path / "keys", "room", node)

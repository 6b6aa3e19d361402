"""The administration socket: what it refuses, and that a reader which dies has lost nothing."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.systems import bench, until
from whence.errors import ConfigError, PayloadTooLargeError, RequestError, ServerDownError
from whence.servers.client import Client
from whence.servers.requests import Refused
from whence.servers.system import System


@pytest.fixture(scope="module")
def system() -> Iterator[System]:
    with bench() as made:
        described = made.write({"one": ["a", "b"]})
        made.run("up", "--detach")
        yield described
        assert "2 servers stopped" in made.run("down")


class Raw:
    """A connection that may say anything."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(20)
        self.socket.connect(str(path))
        self.lines = self.socket.makefile("rb")

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *exc: object) -> None:
        self.lines.close()
        self.socket.close()

    def ask(self, line: bytes) -> dict[str, Any]:
        self.socket.sendall(line + b"\n")
        answer: dict[str, Any] = json.loads(self.lines.readline())
        return answer


WRONG = {
    "no JSON": b"hello",
    "no UTF-8": b'"\xff\xfe"',
    "no object": b"[1, 2]",
    "no request": b"{}",
    "unknown request": b'{"request": "launch"}',
    "unknown field": b'{"request": "status", "of": "b"}',
    "missing field": b'{"request": "send", "to": "b"}',
    "wrong type": b'{"request": "send", "to": 5, "payload": ""}',
    "no base64": b'{"request": "send", "to": "b", "payload": "%%%"}',
    "deep": b"[" * 4000,
    "took, but no tail": b'{"request": "took"}',
}


@pytest.mark.parametrize("what", WRONG)
def test_a_bad_request_is_refused_by_type_and_the_connection_goes_on(system: System, what: str) -> None:
    with Raw(system.socket_of("a")) as raw:
        answer = raw.ask(WRONG[what])
        assert (answer["answer"], answer["type"]) == ("error", "RequestError")
        assert answer["reason"]
        assert answer["fix"]
        assert raw.ask(b'{"request": "status"}')["server"] == "a"


def test_an_endless_request_is_refused_and_closed(system: System) -> None:
    with Raw(system.socket_of("a")) as raw:
        with contextlib.suppress(BrokenPipeError):  # it does not read all of it
            raw.socket.sendall(b"x" * 3_000_000)
        assert json.loads(raw.lines.readline())["type"] == "RequestError"
        with contextlib.suppress(ConnectionResetError):
            assert raw.lines.readline() == b""
    with Client(system, "a") as client:
        assert client.status().server == "a"


def test_errors_keep_their_types(system: System) -> None:
    with Client(system, "a") as client:
        with pytest.raises(ConfigError, match=r"'z'.*none of that name"):
            client.send("z", b"x")
        with pytest.raises(PayloadTooLargeError, match="1048577 bytes"):
            client.send("b", bytes(1024 * 1024 + 1))
        assert client.send("b", bytes(1024 * 1024)).origin == "a"  # the largest that fits
    with Client(system, "a") as client, pytest.raises(RequestError, match="more than 1402197 bytes"):
        client.send("b", bytes(3 * 1024 * 1024))  # M5: it does not read that far, and says so
    with Client(system, "b") as client:
        assert len(next(client.tail(1)).payload) == 1024 * 1024
    strange = Refused(type="SystemExit", what="w", reason="r", fix="f")
    assert type(strange.error()) is RequestError


def test_a_reader_that_dies_has_lost_nothing(system: System) -> None:
    with Raw(system.socket_of("a")) as raw:
        assert raw.ask(b'{"request": "tail"}') == {"answer": "done", "takes": True}
        with Client(system, "a") as client:
            client.send("a", b"to myself")
            client.send("a", b"and again")
        told = json.loads(raw.lines.readline())
        assert told["answer"] == "message"
        assert raw.ask(b'{"request": "tail"}')["type"] == "RequestError"  # it is one already
    with Client(system, "a") as client:
        assert client.status().queue_in == 2
        assert [told.payload for told in client.tail(2)] == [b"to myself", b"and again"]
    with Client(system, "a") as client:
        until(lambda: client.status().queue_in == 0)  # the disk is told with the next commit


def test_two_readers_are_told_the_same_and_one_takes_it(system: System) -> None:
    with Client(system, "a") as one, Client(system, "a") as other, Client(system, "a") as sender:
        first, second = one.tail(), other.tail()
        for payload in (b"0", b"1"):
            sender.send("a", payload)
            told = [next(first).payload, next(second).payload]
            assert told == [payload, payload]


def test_a_server_that_is_not_there() -> None:
    with bench() as made:
        described = made.write()
        with pytest.raises(ServerDownError, match="it does not run"):
            Client(described, "a")

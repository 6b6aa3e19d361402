"""The STOMP gateway, used by an ordinary client of that protocol; and what strangers say to it."""

from __future__ import annotations

import queue
import re
import signal
import socket
from collections.abc import Iterator
from typing import Any

import pytest
import stomp

from support.systems import Bench, bench, until
from whence.errors import FrameError
from whence.servers.stomp import StompFrame, StompReader

TOKEN = "open sesame"


@pytest.fixture(scope="module")
def made() -> Iterator[Bench]:
    with bench() as made:
        made.write({"one": ["a", "b"]})
        made.run("up", "--detach")
        yield made


@pytest.fixture(scope="module")
def port(made: Bench) -> Iterator[int]:
    (made.folder / "token").write_text(TOKEN + "\n")
    process = made.start("gateway", "--port", 0, "--token-file", made.folder / "token")
    assert process.stderr is not None
    found = re.search(r"127\.0\.0\.1:(\d+)", process.stderr.readline())
    assert found is not None
    yield int(found[1])
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    process.stderr.close()


class Heard(stomp.ConnectionListener):  # type: ignore[misc]  # it has no types
    def __init__(self) -> None:
        self.messages: queue.Queue[Any] = queue.Queue()
        self.receipts: queue.Queue[str] = queue.Queue()
        self.errors: queue.Queue[Any] = queue.Queue()

    def on_message(self, frame: Any) -> None:
        self.messages.put(frame)

    def on_receipt(self, frame: Any) -> None:
        self.receipts.put(frame.headers["receipt-id"])

    def on_error(self, frame: Any) -> None:
        self.errors.put(frame)


def connect(port: int, login: str, passcode: str = TOKEN) -> tuple[Any, Heard]:
    connection = stomp.Connection12([("127.0.0.1", port)])
    heard = Heard()
    connection.set_listener("", heard)
    connection.connect(login, passcode, wait=True)
    return connection, heard


def test_an_ordinary_client_sends_and_receives_in_order(port: int) -> None:
    (ann, sent), (bob, heard) = connect(port, "a"), connect(port, "b")
    bob.subscribe("/queue/b", id="1", ack="client-individual")
    for number in range(20):
        ann.send("/queue/b", f"message {number}", receipt=f"r{number}")
    assert [sent.receipts.get(timeout=20) for _ in range(20)] == [f"r{number}" for number in range(20)]
    for number in range(20):
        frame = heard.messages.get(timeout=20)
        assert (frame.body, frame.headers["origin"]) == (f"message {number}", "a")
        bob.ack(frame.headers["ack"])
    ann.disconnect()
    bob.disconnect()


def test_what_is_not_acknowledged_comes_again(port: int) -> None:
    (ann, sent), (bob, heard) = connect(port, "a"), connect(port, "b")
    bob.subscribe("/queue/b", id="1", ack="client")
    ann.send("/queue/b", "once more", receipt="r")
    assert sent.receipts.get(timeout=20) == "r"
    bob.nack(heard.messages.get(timeout=20).headers["ack"])
    assert heard.messages.get(timeout=20).body == "once more"
    bob.disconnect()
    again, heard = connect(port, "b")
    again.subscribe("/queue/b", id="1", ack="client")
    frame = heard.messages.get(timeout=20)
    assert frame.body == "once more"
    again.ack(frame.headers["ack"], receipt="taken")
    assert heard.receipts.get(timeout=20) == "taken"
    ann.disconnect()
    again.disconnect()


def test_auto_takes_at_once(port: int, made: Bench) -> None:
    (ann, _), (bob, heard) = connect(port, "a"), connect(port, "b")
    bob.subscribe("/queue/b", id="s", ack="auto")
    ann.send("/queue/b", "x: y\n\\", **{"content-type": "text/plain"})
    assert heard.messages.get(timeout=20).body == "x: y\n\\"
    until(lambda: made.status()["b"]["queue_in"] == 0)
    ann.disconnect()
    bob.disconnect()


@pytest.mark.parametrize(
    ("login", "passcode", "words"), [("a", "wrong", "passcode"), ("z", TOKEN, "none of that name")]
)
def test_a_stranger_is_refused_by_name(port: int, login: str, passcode: str, words: str) -> None:
    connection = stomp.Connection12([("127.0.0.1", port)])
    heard = Heard()
    connection.set_listener("", heard)
    with pytest.raises(stomp.exception.ConnectFailedException):
        connection.connect(login, passcode, wait=True)
    assert words in heard.errors.get(timeout=20).headers["message"]


def say(port: int, data: bytes) -> bytes:
    """Connected as a, say `data`; returns what is answered until the end."""
    hello = StompFrame("CONNECT", {"accept-version": "1.2", "login": "a", "passcode": TOKEN}).encode()
    with socket.create_connection(("127.0.0.1", port), timeout=20) as raw:
        raw.sendall(hello + data)
        answer = b""
        while part := raw.recv(65536):
            answer += part
    return answer


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"BEGIN\ntransaction:1\n\n\0", b"does not know it"),
        (b"SEND\n\nx\0", b"no header 'destination'"),
        (b"SEND\ndestination:/topic/b\n\nx\0", b"not a queue"),
        (b"SEND\ndestination:/queue/z\n\nx\0", b"none of that name"),
        (b"SEND\ndestination:/queue/b\ncontent-length:9\n\nx\0yyyyyyyyyyyy", b"does not end with NUL"),
        (b"SEND\ndestination:/queue/b\ncontent-length:99999999\n\n", b"more than"),
        (b"SEND\nnonsense\n\n\0", b"no colon"),
        (b"SEND\nx:" + b"y" * 9000, b"more than 8192 bytes"),
        (b"SUBSCRIBE\nid:1\ndestination:/queue/b\n\n\0", b"acts for 'a'"),
        (b"ACK\nid:1#1\n\n\0", b"there is none"),
        (b"\xff\xfe\n\n\0", b"not UTF-8"),
    ],
)
def test_what_makes_no_sense_is_an_error_frame_and_the_end(port: int, data: bytes, words: bytes) -> None:
    answer = say(port, data)
    assert answer.startswith(b"CONNECTED")
    assert b"ERROR" in answer
    assert words in answer


def test_a_server_that_stops_is_said_to_its_subscribers(port: int, made: Bench) -> None:
    connection, heard = connect(port, "b")
    connection.subscribe("/queue/b", id="1", ack="client")
    made.run("down", "b")
    assert "stopped" in heard.errors.get(timeout=30).headers["message"]


def test_frames_survive_any_cut() -> None:
    frames = [
        StompFrame("SEND", {"destination": "/queue/b", "odd:na\\me": "li\nne"}, b"a\0b"),
        StompFrame("ACK", {"id": "1#2"}),
    ]
    data = b"\n\r\n" + b"\n".join(frame.encode() for frame in frames)
    for size in (1, 2, 7, len(data)):
        reader = StompReader(100)
        found = [
            frame for start in range(0, len(data), size) for frame in reader.feed(data[start : start + size])
        ]
        assert [(frame.command, frame.body) for frame in found] == [("SEND", b"a\0b"), ("ACK", b"")]
        assert found[0].headers["odd:na\\me"] == "li\nne"
    with pytest.raises(FrameError, match="escapes nothing"):
        list(StompReader(100).feed(b"SEND\na:\\t\n\n\0"))

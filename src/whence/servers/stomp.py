"""STOMP 1.2 frames (1.1 reads the same): what a gateway reads and writes. No I/O.

SEND
destination:/queue/store
content-length:5

hello\\0
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from whence.errors import FrameError

VERSIONS = ("1.2", "1.1")
HEAD_MAX_BYTES = 8192  # command and headers of one frame
HEADERS_MAX = 64
_END = re.compile(rb"\r?\n\r?\n")
_ESCAPES = {"\\": "\\\\", "\r": "\\r", "\n": "\\n", ":": "\\c"}
_MEANT = {escape: letter for letter, escape in _ESCAPES.items()}
_PLAIN = frozenset({"CONNECT", "CONNECTED"})  # their headers are not escaped, for the sake of STOMP 1.0


class StompFrame(NamedTuple):
    """One frame."""

    command: str
    headers: Mapping[str, str]
    body: bytes = b""

    def need(self, header: str) -> str:
        """A header that the command cannot do without."""
        if header not in self.headers:
            raise _bad(f"{self.command} has no header {header!r}", "Add it")
        return self.headers[header]

    def encode(self) -> bytes:
        """The frame as bytes."""
        escape = str if self.command in _PLAIN else _escaped
        lines = [self.command, *(f"{escape(name)}:{escape(value)}" for name, value in self.headers.items())]
        if self.body:
            lines.append(f"content-length:{len(self.body)}")
        return "\n".join([*lines, "", ""]).encode() + self.body + b"\0"


class StompReader:
    """Cuts bytes into frames; `FrameError` for what is none, after which nothing more can be read."""

    def __init__(self, body_max_bytes: int) -> None:
        self._body_max_bytes = body_max_bytes
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[StompFrame]:
        """Take bytes, and yield every frame that is whole."""
        self._data += data
        while (frame := self._next()) is not None:
            yield frame

    def _next(self) -> StompFrame | None:
        data = self._data
        while data and data[0] in b"\r\n":  # a heart-beat
            del data[0]
        end = _END.search(data, 0, HEAD_MAX_BYTES)
        if end is None:
            if len(data) >= HEAD_MAX_BYTES:
                raise _bad(f"its head has more than {HEAD_MAX_BYTES} bytes", "Send fewer and shorter headers")
            return None
        command, headers = _head(bytes(data[: end.start()]))
        size = self._body_bytes(headers, data, end.end())
        if size is None or len(data) <= end.end() + size:
            return None
        body_end = end.end() + size
        if data[body_end] != 0:
            raise _bad(f"{command} does not end with NUL", "Correct content-length")
        frame = StompFrame(command, headers, bytes(data[end.end() : body_end]))
        del data[: body_end + 1]
        return frame

    def _body_bytes(self, headers: Mapping[str, str], data: bytearray, start: int) -> int | None:
        """How long the body is; None: its end has not come."""
        stated = headers.get("content-length")
        if stated is None:
            at = data.find(0, start)
            size = (len(data) if at < 0 else at) - start
        elif stated.isascii() and stated.isdigit() and len(stated) < 12:
            at, size = start, int(stated)
        else:
            raise _bad(f"content-length {stated!r} is not a number of bytes", "Correct it")
        if size > self._body_max_bytes:
            raise _bad(f"its body has more than {self._body_max_bytes} bytes", "Send a shorter payload")
        return None if at < 0 else size


def _head(data: bytes) -> tuple[str, dict[str, str]]:
    try:
        command, *lines = [line.rstrip("\r") for line in data.decode().split("\n")]
    except UnicodeDecodeError as error:
        raise _bad("its head is not UTF-8", "Encode headers as UTF-8") from error
    if len(lines) > HEADERS_MAX:
        raise _bad(f"it has more than {HEADERS_MAX} headers", "Send fewer")
    meant = str if command in _PLAIN else _unescaped
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise _bad(f"header {line!r} has no colon", "Write name:value")
        headers.setdefault(meant(name), meant(value))  # of a header that is repeated, the first counts
    return command, headers


def _escaped(text: str) -> str:
    return "".join(_ESCAPES.get(letter, letter) for letter in text)


def _unescaped(text: str) -> str:
    def meant(found: re.Match[str]) -> str:
        if found[0] not in _MEANT:
            raise _bad(f"{found[0]!r} escapes nothing", "Escape as STOMP 1.2 does")
        return _MEANT[found[0]]

    return re.sub(r"\\.?", meant, text)


def _bad(reason: str, fix: str) -> FrameError:
    return FrameError("STOMP frame", reason, fix)

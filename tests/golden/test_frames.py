"""The wire format is what it was: the same bytes for the same talk, and stored bytes mean the same."""

from __future__ import annotations

from typing import Any

import pytest

from golden.files import load
from golden.of_frames import (
    LIVE,
    TOGETHER,
    WORDS,
    batches_of_packets,
    controls,
    datagrams,
    greetings,
    header,
    log_packets,
    packets,
)
from golden.talks import TALKS
from whence.core.message import Packet
from whence.protocols.log.wire import WORDS as LOG_KINDS
from whence.protocols.log.wire import LogPacket
from whence.protocols.prc.wire import NAMES
from whence.protocols.registry import lookup, names
from whence.protocols.vcube.control import ControlKind
from whence.session.datagrams import HEADER_BYTES, unpack_header
from whence.session.overlay_wire import overlay_packet, word_of
from whence.session.wire import FrameReader, FrameType, data_frame

GOLDEN: dict[str, Any] = load("frames")
MAX_BYTES = 1 << 20


def reader() -> FrameReader:
    return FrameReader(lookup("vector").packet_type, MAX_BYTES)


def decoded(packet_type: type[Packet], frames: list[str]) -> list[Packet]:
    """What stored frames mean."""
    read = FrameReader(packet_type, MAX_BYTES)
    found = read.feed(bytes.fromhex("".join(frames)))
    assert read.error is None
    assert read.control == []
    return found


@pytest.mark.parametrize("name", LIVE)
def test_a_talk_is_the_same_bytes_and_the_bytes_mean_the_same(name: str) -> None:
    said, stored = packets(name), GOLDEN["packets"][name]
    assert [data_frame(packet).hex() for packet in said] == stored
    assert decoded(TALKS[name].core("a").packet_type, stored) == said


def test_the_talks_use_every_kind_of_packet() -> None:
    assert {TALKS[name].protocol for name in LIVE} == {name for name in names() if lookup(name).live}
    assert {packet[0] for packet in packets("prc")} == set(NAMES) | {0}
    assert {packet[0] for packet in packets("odca-exact")} == {0, 1, 2}
    assert {packet[0] for packet in packets("oppnet-safe")} == {0, 1, 2, 3}
    kinds = {None if packet[2] is None else packet[2].kind for packet in packets("vcube-detect")}
    assert kinds == {None, *ControlKind}


def test_every_kind_of_a_logs_packets_is_the_same_bytes_and_means_the_same() -> None:
    stored = GOLDEN["log packets"]
    assert [packet.kind for packet in log_packets()] == list(range(len(LOG_KINDS)))
    assert [data_frame(packet).hex() for packet in log_packets()] == stored
    assert decoded(LogPacket, stored) == log_packets()


def test_greetings_are_the_same_bytes_and_mean_the_same() -> None:
    made, stored = greetings(), GOLDEN["greetings"]
    assert {name: frame.hex() for name, (frame, _) in made.items()} == stored
    for name, (_, meaning) in made.items():
        assert reader().greeting(bytes.fromhex(stored[name])) == meaning


def test_control_frames_are_the_same_bytes_and_mean_the_same() -> None:
    made, stored = controls(), GOLDEN["controls"]
    assert {name: frame.hex() for name, (frame, _) in made.items()} == stored
    for name, (_, meaning) in made.items():
        read = reader()
        assert read.feed(bytes.fromhex(stored[name])) == []
        assert read.control == ([] if meaning is None else [meaning])
        assert read.error is None


def test_packets_that_leave_together_are_the_same_bytes_and_mean_the_same() -> None:
    stored = GOLDEN["batches"]
    assert [frame.hex() for frame in batches_of_packets()] == stored
    for count, frame in zip(TOGETHER, stored, strict=True):
        assert decoded(TALKS["vector"].core("a").packet_type, [frame]) == packets("vector")[:count]


def test_every_type_of_frame_is_among_them() -> None:
    talks = [frame for frames in GOLDEN["packets"].values() for frame in frames]
    named = [*GOLDEN["greetings"].values(), *GOLDEN["controls"].values()]
    assert {bytes.fromhex(frame)[4] for frame in [*talks, *named, *GOLDEN["batches"]]} == set(FrameType)


def test_words_about_links_are_the_same_bytes_and_mean_the_same() -> None:
    stored = GOLDEN["words"]
    assert [data_frame(overlay_packet("alice", word)).hex() for word in WORDS] == stored
    assert [word_of(packet, "alice") for packet in decoded(lookup("prc").packet_type, stored)] == WORDS


def test_datagrams_are_the_same_bytes_and_mean_the_same() -> None:
    stored = [bytes.fromhex(datagram) for datagram in GOLDEN["datagrams"]]
    assert datagrams() == stored
    assert {unpack_header(datagram) for datagram in stored} == {header()}
    read = FrameReader(lookup("odca").packet_type, MAX_BYTES, datagrams=True)
    said = [packet for datagram in stored for packet in read.whole(datagram[HEADER_BYTES:])]
    assert said == packets("odca-exact")[:30]

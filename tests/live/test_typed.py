"""Values in place of bytes: codecs, headers, questions and replies, and groups without `async`."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

import whence
from support.living import in_a_loop, loopback
from whence.errors import CodecError, GroupClosedError, MisuseError, NoReplyError


class Note(msgspec.Struct):
    text: str
    shelf: int = 0


def pair(protocol: str, **options):
    peers = loopback(("ann", "bob"))
    return [
        whence.join("room", node=name, peers=peers, protocol=protocol, **options) for name in ("ann", "bob")
    ]


@pytest.mark.parametrize(
    ("codec", "value"),
    [
        ("json", {"text": "milk", "n": [1, 2.5, None]}),
        ("msgpack", [b"\x00\xff", "text", 7]),
        (Note, Note("milk", 3)),
        (whence.Codec(str.encode, bytes.decode), "plain text"),
    ],
    ids=["json", "msgpack", "struct", "pair"],
)
@in_a_loop
async def test_a_value_arrives_as_it_was_sent(codec, value) -> None:
    ann, bob = pair("vector", codec=codec)
    async with ann as at_ann, bob as at_bob:
        await at_ann.broadcast(value, headers={"traceparent": "00-1-2-01"})
        received = await at_bob.receive()
        assert (received.origin, received.value) == ("ann", value)
        assert received.headers["traceparent"] == "00-1-2-01"


@in_a_loop
async def test_what_is_no_value_is_told_and_the_next_one_follows() -> None:
    peers = loopback(("ann", "bob"))
    plain = whence.join("room", node="ann", peers=peers, protocol="fifo")
    typed = whence.join("room", node="bob", peers=peers, protocol="fifo", codec=Note)
    other = whence.join("room", node="ann", peers=peers, protocol="fifo", codec="json")
    async with plain as at_ann, typed as at_bob:
        await at_ann.broadcast(b"bytes of another program")
        received = await at_bob.receive()
        with pytest.raises(CodecError, match="no envelope"):
            _ = received.value
        assert received.message.payload == b"bytes of another program"
        await at_ann.leave()
        async with other as at_other:
            await at_other.broadcast({"text": 5})
            while (received := await at_bob.receive()).envelope is None:
                pass
            with pytest.raises(CodecError, match="the codec refuses it"):
                _ = received.value


@in_a_loop
async def test_a_value_that_cannot_be_encoded_is_refused_before_it_is_sent() -> None:
    ann, _ = pair("vector", codec="json")
    async with ann as at_ann:
        with pytest.raises(CodecError, match="cannot be encoded"):
            await at_ann.broadcast(object())
        assert at_ann.group.stats().broadcasts == 0


def test_a_codec_that_is_none_is_refused_when_it_is_named() -> None:
    with pytest.raises(MisuseError, match="codec"):
        pair("vector", codec="yaml")


@in_a_loop
async def test_questions_have_replies_and_other_messages_wait_for_their_reader() -> None:
    ann, bob = pair("matrix", codec=Note)
    async with ann as at_ann, bob as at_bob:

        async def answer() -> None:
            async for received in at_bob:
                if received.is_question:
                    await at_bob.send("ann", Note("by the way"))
                    await at_bob.reply(received, Note(received.value.text.upper()))

        answering = asyncio.create_task(answer())
        replies = await asyncio.gather(*(at_ann.ask("bob", Note(f"q{n}")) for n in range(20)))
        assert [reply.value.text for reply in replies] == [f"Q{n}" for n in range(20)]
        assert [(await at_ann.receive()).value.text for _ in range(20)] == ["by the way"] * 20
        answering.cancel()


@in_a_loop
async def test_a_question_without_a_reply_ends() -> None:
    ann, bob = pair("matrix", codec="json")
    async with ann as at_ann, bob as at_bob:
        with pytest.raises(NoReplyError, match="within"):
            await at_ann.ask("bob", "anyone?", timeout_s=0.2)
        question = await at_bob.receive()
        await at_bob.reply(question, "too late")
        await at_bob.send("ann", "the next")
        assert (await at_ann.receive()).value == "the next"
        with pytest.raises(MisuseError, match="not a question"):
            await at_bob.reply(await_received(at_bob), "no")


def await_received(group) -> whence.Received:
    message = whence.Message("ann", 1, b"")
    return whence.Received(message, None, bytes)


def test_a_group_without_async() -> None:
    peers = loopback(("ann", "bob"))
    one = whence.sync_join("room", node="ann", peers=peers, protocol="vector", codec="json")
    two = whence.sync_join("room", node="bob", peers=peers, protocol="vector", codec="json")
    with one as ann, two as bob:
        ann.broadcast({"n": 1})
        assert bob.receive(timeout_s=20).value == {"n": 1}
        with pytest.raises(TimeoutError):
            bob.receive(timeout_s=0.05)
        bob.broadcast({"n": 2})
        assert [next(iter(ann)).value["n"] for _ in range(2)] == [1, 2]
        assert ann.stats().broadcasts == 1
        with pytest.raises(MisuseError, match="entered before"), one:
            pass
    with pytest.raises(GroupClosedError):
        ann.broadcast({"n": 3})

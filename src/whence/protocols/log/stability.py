"""Causal stability: which messages all have, among members that come, go and lose their disks (R16-R20).

    V_q       what q is known to have delivered: the causal past of its newest message that was delivered
              here, computed from barriers alone
    stable    the least V_q over the members that count, once all of them know of every retirement that this
              node knows of, and each retired stream is here as far as any of them has it
    late      a delivered message whose past does not cover `stable`

Nothing is refused because of membership (R16): it only decides what `stable` counts. ADMIT, RETIRE, ACK and
SENT are messages of the log (mark CONTROL, a JSON list): a new life speaks after some member's ADMIT, which
retires the earlier lives of its name; a store that meets no member for `alone_us` admits itself. Every
message's past is kept until it lies below what is stable, at most `PASTS_MAX` of them: a past that was
dropped makes V_q smaller, never larger.

Why the flag is right. A message m that is delivered unflagged has everything in its past that was stable
here, so none of that is concurrent with it. Why it is rare: a member's messages follow its V_q, and so cover
`stable`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from whence.core.effects import Effects, Stable, Tell
from whence.core.lives import Retired, Stream, is_stream, split_stream
from whence.core.message import NodeId
from whence.protocols.log.book import Entry
from whence.protocols.log.ledger import Ledger
from whence.protocols.log.wire import CONTROL, Item

ADMIT, RETIRE, ACK, SENT = "admit", "retire", "ack", "sent"
PASTS_MAX = 20_000  # pasts of messages that are kept, the newest
NUMBERS_MAX = 4_000_000  # numbers in them, about: there may be many streams
LIVES_MAX = 64  # lives that one ADMIT or RETIRE names, and tags that one SENT does
TAG_MAX = 16  # characters
SENT_MAX = 20_000  # tags that are remembered, the newest


class Stability:
    """Members, what they are known to have, and what is stable."""

    def __init__(
        self,
        own: int,
        ledger: Ledger,
        intern: Callable[[Stream], int | None],
        ack_us: int,
        alone_us: int,
        stride: int,
        skip: int = 0,
    ) -> None:
        self.own = own
        self.ledger = ledger
        self.intern = intern  # the index of a stream, which may be new; None where there is no room
        self.ack_us = ack_us
        self.alone_us = alone_us
        self.admitted: set[int] = set()  # streams
        self.retired: set[int] = set()
        self.retirements: dict[int, int] = {}  # stream -> its newest message that retires a member
        self.knows: dict[int, list[int]] = {}  # V_q by stream q
        self.pasts: dict[tuple[int, int], list[int]] = {}  # (stream, number) -> its past, itself included
        self.sent: dict[str, tuple[int, int]] = {}  # tag of an outbox of this name -> the message it became
        self.stable: list[int] = []
        self.is_new = False  # something was logged since `stable` was computed
        self.must_ack_us: int | None = None  # since when something but ACKs waits to be acknowledged
        self.since_us: int | None = None  # since when this life looks for a member
        self.has_guests = False  # some peer is not admitted
        self._stride = stride
        self._skip = skip  # bytes of a message before its payload
        self._numbers = 0  # in `pasts` and `knows`; no less than there are

    @property
    def may_speak(self) -> bool:
        """Whether this life was admitted; a retired one still speaks."""
        return self.own in self.admitted

    @property
    def has_company(self) -> bool:
        """Whether more than one member counts: what is stable among one may be nowhere else."""
        return len(self.admitted - self.retired) > 1

    def met(self, stream: int) -> None:
        """A peer's life is here: it may have to be admitted."""
        self.has_guests |= stream not in self.admitted

    def open(self) -> None:
        """A new life begins on what earlier ones knew."""
        self.must_ack_us = self.since_us = None
        self.has_guests = False

    # What is logged

    def logged(self, entry: Entry, effects: Effects | None = None) -> bool:
        """An entry was logged; returns whether the message is late."""
        if len(entry) == 4:
            return False
        past = self._past_of(entry)
        stream, number = entry[0], entry[1]
        late = not _covers(past, self.stable)
        self.knows.pop(stream, None)
        self.knows[stream] = past  # the last that spoke is the last
        self.pasts[stream, number] = past
        self._numbers += len(past)
        if len(self.pasts) > PASTS_MAX or self._numbers > NUMBERS_MAX:
            self._trim()
        self.is_new = True
        if entry[5] == CONTROL:
            self._obey(entry, effects)
        return late

    def _trim(self) -> None:
        """Drop the oldest half of what is known of messages, and of streams that do not count."""
        self._numbers = sum(map(len, self.pasts.values())) + sum(map(len, self.knows.values()))
        if len(self.pasts) <= PASTS_MAX and self._numbers <= NUMBERS_MAX:
            return  # what is stable was dropped meanwhile
        for key in list(self.pasts)[: len(self.pasts) // 2]:
            del self.pasts[key]
        strangers = [each for each in self.knows if each not in self.admitted or each in self.retired]
        for stream in strangers[: len(strangers) // 2]:
            del self.knows[stream]

    # rule 001 R18: the causal past of a message, from barriers alone
    def _past_of(self, entry: Item) -> list[int]:
        stream, number, _, after, _, _ = entry
        past = list(self.knows.get(stream, ()))
        past += [0] * (len(self.ledger.names) - len(past))
        for at in range(0, len(after), self._stride):
            source, count = after[at], after[at + 1]
            known = self.pasts.get((source, count))
            if known is not None:
                past[: len(known)] = map(max, past, known)
            elif past[source] < count:
                past[source] = count
        past[stream] = number
        return past

    def _obey(self, entry: Item, effects: Effects | None) -> None:
        """ADMIT and RETIRE change who counts; ACK only says what its sender has."""
        verb, streams = _read(entry[4][self._skip :])
        if verb == SENT:
            self._note_sent(entry, streams)
            return
        found = [self.intern(each) for each in streams]
        named = [each for each in found if each is not None]
        if len(named) < len(found):
            return
        if verb == ADMIT and named:
            self.admitted.add(named[0])
            self._retire(named[1:], effects)
            if named[1:]:
                self.retirements[entry[0]] = entry[1]
        elif verb == RETIRE:
            self._retire(named, effects)
            self.retirements[entry[0]] = entry[1]

    # rule 001 R24: what another copy of this store has sent from its outbox is not sent again
    def _note_sent(self, entry: Item, tags: list[str]) -> None:
        """A life of this node's name says that its next messages come from its outbox, one for each tag."""
        names = self.ledger.names
        if split_stream(names[entry[0]])[0] == split_stream(names[self.own])[0]:
            for number, tag in enumerate(tags, entry[1] + 1):
                self.sent.setdefault(tag, (entry[0], number))
            for tag in list(self.sent)[:-SENT_MAX]:
                del self.sent[tag]

    # rule 001 R20: retiring is idempotent, and the retired one is told
    def _retire(self, streams: Iterable[int], effects: Effects | None) -> None:
        for stream in streams:
            if stream not in self.retired:
                self.retired.add(stream)
                if effects is not None:
                    effects.append(Tell(Retired(*split_stream(self.ledger.names[stream]))))

    # What is said

    def retire(self, name: NodeId) -> bytes | None:
        """The payload of a RETIRE of all lives of a name; None if there is none that counts."""
        streams = [
            self.ledger.names[each] for each in sorted(self.admitted - self.retired)
            if split_stream(self.ledger.names[each])[0] == name
        ]  # fmt: skip
        return _write(RETIRE, streams[-LIVES_MAX:]) if streams else None

    def say_sent(self, tags: Iterable[str]) -> bytes:
        """The payload of a SENT: as many messages follow, at most `LIVES_MAX`."""
        return _write(SENT, list(tags))

    # rule 001 R17: a new life speaks after a member's ADMIT, which retires the earlier lives of its name
    def admit(self, stream: int) -> bytes:
        """The payload of an ADMIT."""
        names = self.ledger.names
        name = split_stream(names[stream])[0]
        earlier = [
            names[each]
            for each in sorted(self.admitted - self.retired)
            if each != stream and split_stream(names[each])[0] == name
        ]
        return _write(ADMIT, [names[stream], *earlier[-LIVES_MAX:]])

    def due(self, peers: list[int], level: list[int], now_us: int) -> list[bytes]:
        """What this node has to say by now: ADMITs of peers' lives, of its own, an ACK.

        `level`: the peers of whose earlier lives everything is here. An ADMIT retires them; what only the
        peer's own store has of them would come later, and be late.
        """
        self.has_guests = any(peer not in self.admitted for peer in peers)
        if not self.may_speak:
            if self.since_us is None:
                self.since_us = now_us
            names = self.ledger.names
            is_first = all(names[self.own] < names[peer] for peer in peers)
            patience_us = self.alone_us if is_first else 3 * self.alone_us
            return [self.admit(self.own)] if now_us - self.since_us >= patience_us else []
        said = [self.admit(peer) for peer in level if peer not in self.admitted]
        if self.must_ack_us is not None and now_us - self.must_ack_us >= self.ack_us and not said:
            said.append(_write(ACK, []))
        return said

    def noted(self, entry: Entry, now_us: int) -> None:
        """An entry was delivered: does it have to be acknowledged? An own message acknowledges everything."""
        if entry[0] == self.own:
            self.must_ack_us = None
        elif self.must_ack_us is None and len(entry) == 6 and not self._is_ack(entry):
            self.must_ack_us = now_us

    def _is_ack(self, entry: Item) -> bool:
        return entry[5] == CONTROL and _read(entry[4][self._skip :])[0] == ACK

    @property
    def waits(self) -> bool:
        """Whether time alone will make this node say something."""
        return not self.may_speak or self.has_guests or self.must_ack_us is not None or self.is_new

    # What is stable

    # rule 001 R18: stable is the least that every member that counts is known to have
    # rule 001 R19: what q is known to have counts only from q's own messages
    def advance(self, effects: Effects) -> bool:
        """Compute what is stable from what is known; returns whether it grew."""
        if not self.is_new:
            return False
        self.is_new = False
        counted = self.counted()
        if counted is None:
            return False
        size = len(self.ledger.names)
        vectors = [each + [0] * (size - len(each)) for each in counted]
        least = (
            [min(column) for column in zip(*vectors, strict=True)] if len(vectors) > 1 else list(vectors[0])
        )
        stable = self.stable + [0] * (size - len(self.stable))
        grown = [(self.ledger.names[at], number) for at, number in enumerate(least) if number > stable[at]]
        if grown:
            self.stable = list(map(max, stable, least))
            effects.append(Stable(tuple(sorted(grown))))
            self._forget()
        return bool(grown)

    def counted(self) -> list[list[int]] | None:
        """V_q of every member that counts; None as long as some must not be counted on yet."""
        members = self.admitted - self.retired
        if not members or any(each not in self.knows for each in members):
            return None  # a member that has said nothing may know nothing
        vectors = [self.knows[each] for each in sorted(members)]
        for stream, number in self.retirements.items():
            if any(_at(vector, stream) < number for vector in vectors):
                return None  # a member may still wait for, or carry, what a retired one has said
        newest = self.ledger.newest
        for stream in self.retired:
            if any(_at(vector, stream) > newest[stream] for vector in vectors):
                return None
        return vectors

    def _forget(self) -> None:
        """Drop the pasts of what lies below what is stable; the newest stable one of each stream stays."""
        stable = self.stable
        self.pasts = {key: past for key, past in self.pasts.items() if key[1] >= stable[key[0]]}

    def save(self) -> dict[str, Any]:
        """Plain data; streams by index, which a book keeps."""
        return {
            "admitted": sorted(self.admitted),
            "retired": sorted(self.retired),
            "retirements": [list(pair) for pair in self.retirements.items()],
            "knows": [[stream, list(past)] for stream, past in self.knows.items()],
            "pasts": [[*key, list(past)] for key, past in self.pasts.items()],
            "sent": [[tag, *id_] for tag, id_ in self.sent.items()],
            "stable": list(self.stable),
            "is_new": self.is_new,
            "must_ack_us": self.must_ack_us,
            "since_us": self.since_us,
            "has_guests": self.has_guests,
            "numbers": self._numbers,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Become what `save` described."""
        self.admitted, self.retired = set(state["admitted"]), set(state["retired"])
        self.retirements = dict(state["retirements"])
        self.knows = {stream: list(past) for stream, past in state["knows"]}
        self.pasts = {(stream, number): list(past) for stream, number, past in state["pasts"]}
        # Checkpoints of an earlier release lack this.
        self.sent = {tag: (stream, number) for tag, stream, number in state.get("sent", ())}
        self.stable, self.is_new = list(state["stable"]), state["is_new"]
        self.must_ack_us, self.since_us = state["must_ack_us"], state["since_us"]
        self.has_guests = state["has_guests"]
        self._numbers = state.get("numbers", 0)  # checkpoints of an earlier release lack it


def _covers(past: list[int], stable: list[int]) -> bool:
    return all(map(int.__ge__, past, stable)) and not any(stable[len(past) :])


def _at(vector: list[int], stream: int) -> int:
    return vector[stream] if stream < len(vector) else 0


def _write(verb: str, words: list[str]) -> bytes:
    return json.dumps([verb, *words]).encode()


def _read(payload: bytes) -> tuple[str, list[str]]:
    """Verb and streams, or tags; what a liar wrote is ("", [])."""
    try:
        words = json.loads(payload) if len(payload) < 64_000 else None
    except (ValueError, RecursionError):
        words = None
    if not isinstance(words, list) or not words or not all(isinstance(each, str) for each in words):
        return "", []
    verb, *rest = words
    is_right = (lambda tag: len(tag) <= TAG_MAX) if verb == SENT else is_stream
    if len(rest) > LIVES_MAX + 1 or not all(map(is_right, rest)):
        return "", []
    return verb, rest

"""Judgements of a HELLO: each verdict for its reason, and none changes anything."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from session.pairs import MakeAdmission, durable, identity_of, pair
from whence.session.admission import Accept, Goodbye, Listed, Refuse, Verdict
from whence.session.handshake import GoneError, RefusedForNowError, RestartedError, RetiredError
from whence.session.links import Link, LinkState
from whence.session.wire import Hello

HERE, THERE = 11, 10  # sessions of b, which judges, and of a


def hello(**changes: Any) -> Hello:
    """What a says to b."""
    _, a, _ = pair()
    return msgspec.structs.replace(a.identity.hello(a.links["b"]), **changes)


def state_of(link: Link) -> dict[str, Any]:
    """All that a judgement could change."""
    plain = {name: value for name, value in vars(link).items() if name not in ("out", "incoming")}
    return {**plain, "queued": link.out.total, "received": link.incoming.received}


def judged(link: Link, said: Hello, kind: MakeAdmission = Listed, dialled: Link | None = None) -> Verdict:
    admission = kind(identity_of("b", ("a", "b"), HERE), {"a": link})
    before = state_of(link)
    verdict = admission.judge(said, dialled, 100.0, parting=False)
    assert state_of(link) == before
    assert type(admission.judge(said, dialled, 100.0, parting=True)) is type(verdict)  # we can be greeted
    return verdict


def link_to_a(**given: Any) -> Link:
    _, _, b = pair(renews=given.pop("renews", False))
    link = b.links["a"]
    for name, value in given.items():
        setattr(link, name, value)
    return link


CHANNEL: Any = object()


@pytest.mark.parametrize(
    ("link", "said", "kind"),
    [
        ({}, {}, Accept),
        ({"peer_session": THERE}, {"peer_session": HERE}, Accept),
        ({"peer_session": THERE, "channel": CHANNEL}, {}, Accept),  # it has noticed before us
        ({"peer_session": 9}, {}, Accept),
        ({"peer_session": 9, "renews": True}, {}, Accept),
        ({"peer_session": 9, "peer_life": 7, "channel": CHANNEL}, {}, RefusedForNowError),
        ({"peer_session": THERE, "peer_life": 7, "channel": CHANNEL}, {"earlier": [7]}, RefusedForNowError),
        ({"peer_session": THERE, "state": LinkState.LEFT, "alive": False}, {}, Goodbye),
        ({"peer_session": 9, "state": LinkState.LEFT, "alive": False}, {}, Accept),
        ({"peer_session": THERE, "state": LinkState.GIVEN_UP, "alive": False}, {}, GoneError),
        ({}, {"peer_session": 5}, Accept),
        ({"peer_session": 9, "renews": True}, {"peer_session": 5}, Accept),
        ({"refuse_until_s": 101.0}, {}, RefusedForNowError),
        ({"refuse_until_s": 99.0}, {}, Accept),
    ],
)
def test_a_verdict_has_its_reason(link: dict[str, Any], said: dict[str, Any], kind: type) -> None:
    known = link_to_a(**link)
    for admission in (Listed, durable):
        verdict = judged(known, hello(**said), admission)
        if isinstance(verdict, Refuse):
            assert type(verdict.error) is kind
        else:
            assert type(verdict) is kind
            assert verdict.link is known


A_LIFE = 100 + THERE


@pytest.mark.parametrize(
    ("link", "said", "renewed", "welcomes", "redraws"),
    [
        ({"peer_session": THERE}, {"peer_session": HERE}, False, False, False),
        ({"peer_session": THERE, "peer_life": A_LIFE}, {"peer_session": HERE}, False, False, False),
        # Its store was opened again: it goes on.
        (
            {"peer_session": THERE, "peer_life": 7},
            {"peer_session": HERE, "earlier": [7]},
            False,
            False,
            False,
        ),
        # A copy of its store, from before a life that we met.
        ({"peer_session": THERE, "peer_life": 7}, {"peer_session": HERE, "earlier": [6]}, True, True, True),
        ({"peer_session": 9}, {"peer_session": HERE}, True, True, False),  # another process, or another store
        ({"peer_session": 9}, {"peer_session": HERE, "returns": True}, True, False, False),  # it says: we are
        ({"peer_session": 1}, {"peer_session": HERE, "returns": True}, True, True, False),  # it was given up
        ({}, {"peer_session": 5}, True, False, False),  # we are the other one
        (
            {"peer_session": THERE},
            {"peer_session": HERE, "received": 3},
            True,
            False,
            True,
        ),  # our store is old
    ],
)
def test_who_is_another_life_is_told_where_it_begins(
    link: dict[str, Any], said: dict[str, Any], renewed: bool, welcomes: bool, redraws: bool
) -> None:
    for admission in (Listed, durable):
        verdict = judged(link_to_a(**link), hello(**said), admission)
        assert isinstance(verdict, Accept)
        assert (verdict.renewed, verdict.welcomes, verdict.redraws) == (renewed, welcomes, redraws)


def test_a_retired_life_is_refused_and_another_one_is_not() -> None:
    admission = Listed(identity_of("b", ("a", "b"), HERE), {"a": link_to_a(peer_session=9)})
    admission.retired["a"] = A_LIFE
    verdict = admission.judge(hello(), None, 100.0, parting=False)
    assert isinstance(verdict, Refuse)
    assert isinstance(verdict.error, RetiredError)
    assert isinstance(admission.judge(hello(life=5), None, 100.0, parting=False), Accept)


def test_a_protocol_that_takes_nobody_back_refuses_and_nothing_else() -> None:
    fixed = partial(Listed, returns=False)
    for said in ({"peer_session": HERE}, {"peer_session": 5}):
        verdict = judged(link_to_a(peer_session=9), hello(**said), fixed)
        assert isinstance(verdict, Refuse)
        assert isinstance(verdict.error, RestartedError)


@settings(deadline=None)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "group": st.sampled_from(["room", "kitchen"]),
            "node": st.sampled_from(["a", "b", "c"]),
            "to": st.sampled_from(["a", "b", "c"]),
            "session": st.integers(0, 12),
            "peer_session": st.integers(0, 12),
            "received": st.integers(0, 3),
            "members": st.sampled_from([["a", "b"], ["a"], []]),
        },
    ),
    st.sampled_from(LinkState),
    st.booleans(),
    st.integers(0, 12),
    st.booleans(),
)
def test_every_hello_has_a_verdict_that_changes_nothing(
    said: dict[str, Any], state: LinkState, connected: bool, peer_session: int, renews: bool
) -> None:
    channel = CHANNEL if connected else None
    link = link_to_a(
        state=state, alive=state is LinkState.ALIVE, channel=channel, peer_session=peer_session, renews=renews
    )
    verdict = judged(link, hello(**said))
    agrees = said.get("group", "room") == "room" and said.get("members", ["a", "b"]) == ["a", "b"]
    names = (said.get("node", "a"), said.get("to", "b")) == ("a", "b")
    if not (agrees and names and said.get("session", THERE) > 1):
        assert isinstance(verdict, Refuse)
    if isinstance(verdict, Accept):
        knows = link.peer_session in (0, said.get("session", THERE))
        assert verdict.renewed or (knows and said.get("peer_session", 0) in (0, HERE))

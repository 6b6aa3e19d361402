"""Protocol `log` by its rules: what each of them says, on the smallest case."""

from __future__ import annotations

import random
from copy import deepcopy
from typing import Any

import pytest

from support.net import Net
from whence.core.effects import CloseLink, Deliver, Discard, Effects, Logged, Missed, Reason, Send
from whence.core.lives import (
    Forked,
    Joined,
    Left,
    News,
    OtherLife,
    Rejoined,
    Retired,
    RolledBack,
    Suspected,
    in_words,
    life_of,
    stream_of,
)
from whence.core.message import MessageId
from whence.core.protocol import LEAVE
from whence.errors import MisuseError, ParameterError
from whence.lab.run import run
from whence.protocols.log import stability
from whence.protocols.log.book import MemoryBook
from whence.protocols.log.core import Log
from whence.protocols.log.wire import (
    APP,
    CONTROL,
    DATA,
    FLOOR,
    HAVE,
    HELLO,
    MAIN,
    MEMBER,
    PART,
    WANT,
    WHOLE,
    LogPacket,
)
from whence.sim.model import Link, Periodic, Ring, Scenario, Stop

SECOND_US = 1_000_000


def later(net: Net, seconds: float = 3.0) -> None:
    """Let everything arrive that is sent within some time."""
    until_us = net.now_us + round(seconds * SECOND_US)
    while net.now_us < until_us:
        net.settle()
        net.pass_time(net.now_us + 50_000)
    net.settle()


def group(names: str = "abc", **params: Any) -> Net:
    net = Net("log", names, step_us=1, check=True, **params)
    later(net, 0.1)
    return net


def add(net: Net, name: str, to: str, **more: Any) -> None:
    net.add(name, **more)
    for other in to:
        net.link(name, other)
    later(net)


def reopened(core: Log, opening: int, **params: Any) -> Log:
    """The next life of a node on a copy of its book."""
    book = MemoryBook()
    book.restore(core.book.save())  # type: ignore[attr-defined]
    return Log(core.me, [], book=book, life=life_of(core.me, opening), **params)


def replace(net: Net, name: str, core: Log) -> None:
    net.drop(name)
    net.cores[name] = core
    for other in [each for each in net.cores if each != name]:
        net.link(name, other)
    later(net)


def said(net: Net, *nodes: str) -> None:
    for node in nodes:
        net.broadcast(node)
        later(net, 0.2)


# Identity (R1 to R3)


def test_r1_every_open_is_a_new_life_and_numbers_begin_again() -> None:
    net = group()
    said(net, "a", "a", "b")
    first = net.cores["a"].origin
    replace(net, "a", reopened(net.cores["a"], 1))
    said(net, "a")
    assert net.cores["a"].origin != first
    assert net.ids("c")[-1] == f"{net.cores['a'].origin}:1"
    with pytest.raises(MisuseError, match="it has been lived"):
        reopened(net.cores["a"], 1)


def test_r2_the_first_message_of_a_life_follows_the_end_of_the_last_one() -> None:
    net = group("ab")
    said(net, "a", "b", "a")
    core = reopened(net.cores["a"], 1)
    old = net.cores["a"].origin
    core.broadcast(b"x", 0)
    entry = core.book.read(core.book.next - 1, 1)[0]
    after = entry[3]
    named = {core.ledger.names[after[at]]: after[at + 1] for at in range(0, len(after), 2)}  # type: ignore[index,arg-type]
    assert named == {old: 2}  # which follows what b said


def test_r3_a_rollback_is_told_and_what_peers_hold_is_taken_back() -> None:
    net = group("ab")
    said(net, "a")
    old = reopened(net.cores["a"], 1)
    life = net.cores["a"].life
    said(net, "a", "a")
    replace(net, "a", old)
    assert net.news["a"].count(RolledBack(life, 1, 3)) == 1
    assert net.ids("a")[-2:] == [f"{stream_of('a', life)}:{number}" for number in (2, 3)]


def test_r3_another_life_of_the_own_name_is_told() -> None:
    net = group("ab")
    said(net, "a")
    life = net.cores["a"].life
    replace(net, "a", Log("a", [], life=life_of("a", 7)))
    assert OtherLife(life) in net.news["a"]


def test_names_with_a_slash_are_refused() -> None:
    with pytest.raises(ParameterError, match='no "/"'):
        Log("a/b", [])
    with pytest.raises(ParameterError, match="16 hexadecimal digits"):
        Log("a", [], life="xyz")


# Log, order and jumps (R6 to R10, R14)


def test_r8_a_jump_is_told_stream_by_stream_and_never_silent() -> None:
    net = group("ab", keep="count", keep_count=2)
    for _ in range(20):
        said(net, "a", "b")
    add(net, "c", "b")
    assert {missed.reason for missed in net.missed["c"]} == {"truncated"}
    accounted = {missed.stream: missed.last for missed in net.missed["c"]}
    for id_ in net.delivered["c"]:
        assert id_.number == accounted.get(id_.origin, 0) + 1
        accounted[id_.origin] = id_.number
    assert accounted == {net.cores[name].origin: 20 for name in "ab"}


def test_history_new_begins_at_the_first_peers_present() -> None:
    net = group("ab")
    said(net, "a", "b")
    add(net, "c", "a", history="new")
    assert net.ids("c") == []
    assert [(each.first, each.last, each.reason) for each in net.missed["c"]] == [
        (1, 1, "before joining")
    ] * 2
    said(net, "b")
    assert net.ids("c") == [f"{net.cores['b'].origin}:2"]


def test_a_snapshot_is_a_jump_to_its_cut() -> None:
    net = group("ab")
    said(net, "a", "a", "b")
    net.add("c")
    cut = tuple(f"{net.cores[name].origin}:{number}" for name, number in (("a", 2), ("b", 1)))
    net.do("c", lambda core, now_us: core.command("jump", cut, now_us))
    net.link("c", "a")
    said(net, "a")
    assert net.ids("c") == [f"{net.cores['a'].origin}:3"]
    with pytest.raises(MisuseError, match="NAME/LIFE:NUMBER"):
        net.cores["c"].command("jump", ("nonsense",), net.now_us)


def test_expired_messages_are_told_where_nobody_has_them_in_time() -> None:
    net = group("ab", lifetimes=True)
    net.broadcast("a", 100_000)
    net.broadcast("a")
    net.flying.clear()
    net.cut("a", "b")
    net.pass_time(net.now_us + SECOND_US)
    net.link("a", "b")
    later(net)
    assert net.missed["b"] == [Missed(net.cores["a"].origin, 1, 1, "expired", 1)]
    assert net.ids("b") == [f"{net.cores['a'].origin}:2"]


# Exchange (R11 to R15)


def test_r12_a_mesh_brings_every_message_once() -> None:
    net = group("abcd")
    for _ in range(5):
        said(net, *"abcd")
    items = [item for flight in net.sent if flight.packet.kind == DATA for item in flight.packet.items]
    assert len(items) == 20 * 3
    assert not net.discards


def test_r15_reconnecting_with_equal_logs_takes_less_than_200_bytes() -> None:
    net = group("ab")
    for _ in range(50):
        net.broadcast("a")
        net.broadcast("b")
    later(net)
    net.cut("a", "b")
    before = len(net.sent)
    net.link("a", "b")
    later(net)
    talk = [net.cores["a"].sizes(flight.packet).total_bytes for flight in net.sent[before:]]
    assert 0 < sum(talk) <= 200


def test_r15_a_thousand_streams_are_compared_by_their_tree() -> None:
    books = []
    for more in (0, 3):
        book = MemoryBook()
        for at in range(1_000):
            index = book.add_stream(stream_of(f"n{at}", life_of(f"n{at}", 0)))
            for number in range(1, 2 + (at < more)):
                book.append((index, number, 0, (), b"", 0))
        books.append(book)
    net = Net(lambda name, names, **_: Log(name, [], book=books["ab".index(name)]), "ab", check=True)
    later(net)
    assert net.cores["a"].ledger.newest[:4] == [2, 2, 2, 1]
    told = sum(net.cores["a"].sizes(flight.packet).total_bytes for flight in net.sent)
    assert told < 10_000


def test_r13_what_was_lost_with_its_feed_is_pulled_from_another() -> None:
    net = group("abc")
    said(net, "a")
    net.broadcast("a")
    net.cut("a", "c")  # with what was under way
    later(net)
    assert net.ids("c") == net.ids("b")


def test_r13_a_hole_before_what_is_new_is_pulled_although_new_messages_never_stop() -> None:
    """Two nodes meet under load: what is said between HELLO and MAIN jumps over what the newcomer lacks."""
    core = Log("b", [], tick_us=100_000, pull_us=300_000)
    core.link_up("a", 0)
    stream = stream_of("a", life_of("a", 0))
    core.receive("a", LogPacket(HELLO, ((0, stream),), (1, 0, 1, 1)), 0)
    effects = core.receive("a", LogPacket(HAVE, (), (WHOLE, 0, 5)), 0)
    assert [effect.packet.kind for effect in effects if isinstance(effect, Send)][-1:] == [MAIN]
    asked: list[int] = []
    for number in range(6, 106):  # for two seconds
        now_us = 20_000 * number
        effects = core.receive("a", LogPacket(DATA, (), (), ((0, number, 0, (), b"", 0),)), now_us)
        if number % 5 == 0:
            effects += core.timer("tick", now_us)
        sent = [effect.packet for effect in effects if isinstance(effect, Send)]
        asked += [packet.numbers[1] for packet in sent if packet.kind == WANT]
    assert asked
    assert set(asked) == {1}


def test_r21_sessions_are_told_before_what_they_wait_for_is_cut() -> None:
    net = Net("log", "ab", (), step_us=1, check=True, keep="count", keep_count=2, window=1)
    net.link("a", "b")
    net.settle()
    net.do("b", lambda core, now_us: core.command("pause", (), now_us))
    for _ in range(16):  # b takes nothing: its cursor stands still
        net.broadcast("a")
    net.settle()
    origin = net.cores["a"].own
    floors = [flight.packet for flight in net.sent if flight.packet.kind == FLOOR]
    assert floors, "the log was cut over b's cursor without a word"
    assert floors[0].numbers[0] == PART
    assert origin in floors[0].numbers[1::2]
    net.do("b", lambda core, now_us: core.command("resume", (), now_us))
    later(net, 6)
    assert net.missed["b"][0].reason == "truncated"
    assert net.cores["b"].ledger.newest == [0, 16] or 16 in net.cores["b"].ledger.newest


def test_a_slow_reader_stops_its_feeders_and_nobody_else() -> None:
    net = group("abc", window=4)
    net.do("b", lambda core, now_us: core.command("pause", (), now_us))
    for _ in range(30):
        net.broadcast("a")
    later(net, 1)
    assert len(net.ids("c")) == 30
    assert len(net.ids("b")) <= 2 * 4
    net.do("b", lambda core, now_us: core.command("resume", (), now_us))
    later(net)
    assert len(net.ids("b")) == 30


def test_the_exchange_of_paper_001_is_drawn_and_paced() -> None:
    net = Net("log", "ab", (), step_us=1, check=True, exchange="random", gap_us=1_000, setup_max_us=0)
    for _ in range(20):
        net.broadcast("a")
    net.link("a", "b")
    start_us = net.now_us
    later(net, 1)
    numbers = [item[1] for flight in net.sent for item in flight.packet.items]
    assert sorted(numbers) == list(range(1, 21))
    assert numbers != sorted(numbers), "in a drawn order"
    assert [id_.number for id_ in net.delivered["b"]] == list(range(1, 21))
    last_us = max(at_us for (node, _), at_us in net.delivered_us.items() if node == "b")
    assert last_us - start_us >= 19 * 1_000, "one every gap_us"


# Reading and writing (R23 to R26)


def test_r23_done_in_any_order_and_the_cursor_is_the_first_that_is_not() -> None:
    net = group("ab", reads=True)
    said(net, "a", "a", "a")
    book = net.cores["b"].book
    net.cores["b"].done(3)
    net.cores["b"].done(1)
    assert (book.cursor, book.is_done(2), book.is_done(3)) == (2, False, True)
    again = reopened(net.cores["b"], 1, reads=True)
    assert (again.book.cursor, again.book.is_done(3)) == (2, True)  # type: ignore[attr-defined]
    net.cores["b"].done(2)
    assert book.cursor == 4


def test_what_a_reader_does_not_take_is_dropped_at_max_bytes_and_told() -> None:
    net = group("ab", reads=True, max_bytes=3_000)
    for _ in range(60):
        said(net, "a")
    assert net.cores["b"].book.size_bytes <= 3_000 + 16 * 100
    unread = [each for each in net.missed["b"] if each.reason == "unread"]
    assert unread[0].first == 1
    assert unread[-1].last < 60


@pytest.mark.parametrize(
    "keep", [{"keep": "bytes", "keep_bytes": 2_000}, {"keep": "count", "keep_count": 20}], ids=str
)
def test_r21_what_is_too_much_is_cut_when_a_slow_reader_is_done_and_nothing_else_happens(
    keep: dict[str, Any],
) -> None:
    net = group("a", reads=True, **keep)
    for _ in range(60):
        net.broadcast("a")
    later(net)
    book = net.cores["a"].book  # type: ignore[attr-defined]
    assert (book.first, book.next) == (1, 61)
    book.done_before(31)
    later(net)
    assert book.first == 31
    book.done_before(61)
    later(net)
    assert 61 - 25 <= book.first <= 61 - 15
    assert not net.cores["a"]._needs_tick()  # type: ignore[attr-defined]


def test_r24_a_key_names_one_message_for_ever() -> None:
    core = Log("a", [])
    assert core.id_of(b"k") is None
    core.broadcast_once(b"k", b"x", 0)
    assert core.id_of(b"k") == MessageId(core.origin, 1)
    with pytest.raises(MisuseError, match="has been broadcast"):
        core.broadcast_once(b"k", b"x", 0)
    again = reopened(core, 1)
    assert again.id_of(b"k") == MessageId(core.origin, 1)


def test_r25_copies_counts_peers_that_said_they_have_it() -> None:
    net = group("abc")
    net.broadcast("a")
    assert net.cores["a"].copies(1) == 0
    later(net)
    assert net.cores["a"].copies(1) == 2


def test_r26_comings_and_goings_are_told() -> None:
    net = group("ab", suspect_us=SECOND_US)
    assert net.news["a"] == [Joined("b")]
    net.do("b", lambda core, now_us: core.timer(LEAVE, now_us))
    net.settle()
    assert net.news["a"][-1] == Left("b")
    add(net, "c", "a")
    net.cut("a", "c")
    later(net, 3)
    assert net.news["a"][-2:] == [Joined("c"), Suspected("c")]


# Members and stability (R16 to R20)

QUICK = {"stability": True, "ack_us": 100_000, "alone_us": 300_000}


def members(names: str = "abc") -> Net:
    net = Net("log", names, step_us=1, check=True, **QUICK)
    for name in names:
        net.do(name, lambda core, now_us: core.timer("begin", now_us))
    later(net, 5)
    assert all(net.cores[name].ready for name in names)
    return net


def test_r17_a_newcomer_waits_for_a_member() -> None:
    net = members("ab")
    net.add("c")
    with pytest.raises(MisuseError, match="admitted"):
        net.cores["c"].broadcast(b"x", net.now_us)
    net.link("c", "b")
    later(net)
    assert net.cores["c"].ready


def test_a_fresh_core_keeps_its_invariants_before_any_input() -> None:
    Log("a", [], stability=True).check()


def test_what_comes_from_an_outbox_is_known_to_every_life_of_the_name_and_to_nobody_else() -> None:
    net = group("ab", **QUICK)
    later(net)
    b = net.cores["b"]
    net.do("b", lambda core, now_us: core.command("sent", ("1f", "2e"), now_us))
    later(net)
    known = {"1f": (b.own, b.last + 1), "2e": (b.own, b.last + 2)}
    assert b.stability.sent == known
    assert net.cores["a"].stability.sent == {}
    again = reopened(b, 1, **QUICK)
    assert again.stability is not None
    assert again.stability.sent == known
    words = stability._read(stability._write(stability.SENT, ["x" * (stability.TAG_MAX + 1)]))
    assert words == ("", [])  # no host writes that


def test_a_lone_founder_keeps_what_is_stable_for_the_first_to_come() -> None:
    net = group("a", stability=True, keep="stable", alone_us=1)
    net.do("a", lambda core, now_us: core.timer("begin", now_us))
    later(net)
    said(net, "a", "a")
    later(net)
    core = net.cores["a"]
    assert core.stable()[core.origin] == core.last
    assert core.book.first == 1
    add(net, "b", "a", alone_us=1 << 40)
    assert net.ids("b") == net.ids("a")
    said(net, "a", "b")
    later(net)
    assert core.book.first > 1


def test_r18_what_everybody_has_becomes_stable() -> None:
    net = members()
    said(net, "a", "b", "c")
    later(net, 5)
    for name in "abc":
        stable = net.cores[name].stable()
        assert all(stable[id_.origin] >= id_.number for id_ in net.past)


def test_r18_a_silent_member_holds_back_what_is_stable() -> None:
    """It may have delivered nothing: what it says next may be concurrent with everything."""
    net = members("ab")
    later(net, 5)
    net.add("c")
    net.link("c", "a")
    while net.cores["a"].stability.admitted <= {net.cores[name].own for name in "a"} or not any(
        stream.startswith("c/") and index in net.cores["a"].stability.admitted
        for stream, index in net.cores["a"].ledger.index.items()
    ):
        net.settle()
        net.pass_time(net.now_us + 10_000)
    net.drop("c")  # admitted, and never heard of again
    before = net.cores["a"].stable()
    said(net, "a", "b", "a")
    later(net, 5)
    stable = net.cores["a"].stable()
    newest = net.cores["a"].origin
    assert stable.get(newest, 0) < net.cores["a"].last, "c may not know of it"
    assert stable.get(newest, 0) <= before.get(newest, 0) + 2


def test_r18_a_retirement_counts_only_when_every_member_knows_of_it() -> None:
    net = members()
    net.drop("c")
    net.cut("a", "b")
    said(net, "a")
    net.do("a", lambda core, now_us: core.command("retire", ("c",), now_us))
    net.do("a", lambda core, now_us: core.command("retire", ("b",), now_us))
    later(net)
    before = net.cores["b"].stable()
    assert before.get(net.cores["a"].origin, 0) < net.cores["a"].last
    net.link("a", "b")
    net.arrive(net.find("b", sender="a"))
    later(net)
    c_stream = next(stream for stream in net.cores["a"].ledger.index if stream.startswith("c/"))
    assert Retired("c", c_stream.rpartition("/")[2]) in net.news["b"]
    assert net.cores["b"].ready, "who is retired still speaks (R20)"


def test_r18_retiring_frees_what_a_dead_member_held_back() -> None:
    net = members()
    net.drop("c")
    said(net, "a", "b")
    later(net)
    own = net.cores["a"].origin
    assert net.cores["b"].stable().get(own, 0) < net.cores["a"].last
    net.do("a", lambda core, now_us: core.command("retire", ("c",), now_us))
    retired_at = net.cores["a"].last
    counted = net.cores["a"].stability.counted()
    assert counted is None, "b does not know of it yet"
    later(net, 5)
    assert net.cores["b"].stable()[own] >= retired_at


# Limits


def greeted(core: Log, peer: str = "a", opening: int = 0, now_us: int = 0) -> list[Any]:
    """A peer by hand has met a core, and has nothing."""
    core.link_up(peer, now_us)
    hello = LogPacket(HELLO, ((0, stream_of(peer, life_of(peer, opening))),), (1, 0, 0, 0))
    effects = core.receive(peer, hello, now_us)
    effects += core.receive(peer, LogPacket(HAVE, (), (WHOLE,)), now_us)
    return effects


def named(first: int, count: int) -> tuple[tuple[int, str], ...]:
    return tuple((at, stream_of(f"n{at}", life_of("n", at))) for at in range(first, first + count))


def test_a_peer_names_so_many_streams_a_minute_and_is_then_cut_off() -> None:
    core = Log("b", [], streams_per_minute=10)
    greeted(core)
    assert CloseLink("a") not in core.receive("a", LogPacket(HAVE, named(1, 9), (PART,)), 0)
    for again in range(3):  # a new session has no new budget
        assert CloseLink("a") in core.receive("a", LogPacket(HAVE, named(20, 1), (PART,)), again)
        core.link_down("a", again)
        greeted(core, now_us=again)
    assert len(core.ledger.names) == 11
    core.receive("a", LogPacket(HAVE, named(20, 8), (PART,)), 60 * SECOND_US)
    assert len(core.ledger.names) == 19
    core.check()


def test_who_knows_more_streams_than_a_minute_allows_is_learnt_from_in_several() -> None:
    net = Net("log", "ab", step_us=1, check=True)
    a = net.cores["a"]
    for name, stream in named(0, 60):
        a.exchange.intern(stream)
        a.delivery.log((name + 1, 1, 0, (), b"x", 0), 0, [])
    net.cut("a", "b")
    net.add("c", streams_per_minute=25)
    for _ in range(4):
        net.link("c", "a")
        later(net, 5)
        if net.is_linked("c", "a"):
            break
        net.pass_time(net.now_us + 60 * SECOND_US)
    assert len(net.ids("c")) == 60


def test_simulated_connections_that_are_closed_are_made_anew() -> None:
    scenario = Scenario(
        nodes=4,
        protocol="log",
        params={"streams_per_minute": 1},
        topology=Ring(),
        link=Link(fifo=True, retransmit_us=10_000),
        workloads=[Periodic(interval_us=100_000, stop_us=1_000_000)],
        stop=Stop(duration_us=300_000_000),
    )
    outcome = run(scenario, check=True)
    assert outcome.drained
    assert outcome.deliveries == outcome.broadcasts * 4


def test_a_name_calls_in_so_many_new_lives_an_hour() -> None:
    core = Log("b", [], lives_per_hour=3)
    for opening in range(5):
        closes = CloseLink("a") in greeted(core, opening=opening, now_us=opening)
        assert closes == (opening >= 3)
        core.link_down("a", opening)
    assert CloseLink("a") not in greeted(core, opening=1, now_us=9)  # one that is known may come again
    core.link_down("a", 10)
    assert CloseLink("a") not in greeted(core, opening=7, now_us=3600 * SECOND_US)
    assert CloseLink("c") not in greeted(core, "c", now_us=20)


def test_a_peer_pulls_so_often_a_minute_and_so_much_at_a_time() -> None:
    core = Log("b", [], wants_per_minute=5, window=1 << 20)
    greeted(core)
    for _ in range(30):
        core.broadcast(b"x", 0)
    core.receive("a", LogPacket(HAVE, ((7, core.origin),), (PART,)), 0)
    want = LogPacket(WANT, (), (7, 1))
    given = [
        sum(len(effect.packet.items) for effect in core.receive("a", want, 0) if isinstance(effect, Send))
        for _ in range(8)
    ]
    assert given == [30] * 5 + [0] * 3
    assert Discard(None, "a", Reason.MALFORMED) in core.receive("a", want, 1)
    many = LogPacket(WANT, (), (7, 1) * 300)
    assert Discard(None, "a", Reason.MALFORMED) in core.receive("a", many, 61 * SECOND_US)


def test_a_peer_cannot_give_one_stream_names_without_end() -> None:
    core = Log("b", [])
    greeted(core)
    stream = stream_of("a", life_of("a", 0))
    names = tuple((at, stream) for at in range(1, 50))
    assert CloseLink("a") in core.receive("a", LogPacket(HAVE, names, (PART,)), 0)
    assert "a" not in core.exchange.of


def test_a_barrier_has_so_many_entries_and_no_more() -> None:
    core = Log("b", [])
    greeted(core)
    core.receive("a", LogPacket(HAVE, named(1, 5000), (PART,)), 0)
    for entries, held in ((4096, 1), (4097, 0)):
        after = tuple(part for at in range(1, entries + 1) for part in (at, 1))
        before = core.waiting
        core.receive("a", LogPacket(DATA, (), (), ((0, entries, 0, after, b"", 0),)), 0)
        assert core.waiting - before == held


def test_what_died_out_of_turn_is_kept_up_to_a_limit() -> None:
    core = Log("b", [], lifetimes=True, held_max=10)
    core.link_up("a", 0)
    core.receive("a", LogPacket(HELLO, ((0, stream_of("a", life_of("a", 0))),), (1, 1, 0, 0)), 0)
    core.receive("a", LogPacket(HAVE, (), (WHOLE,)), 0)
    for number in range(2, 100):
        core.receive("a", LogPacket(DATA, (), (), ((0, number, 5, (), b"", 0),)), 10)
    assert core.timed is not None
    assert sum(map(len, core.timed.dead.values())) == 10
    core.check()


def test_what_peers_say_is_dead_comes_again_where_too_much_was_told_at_once() -> None:
    """It counts `skew_us` later (R10), and so long no more than `held_max` of it is kept."""
    net = group("abcde", lifetimes=True, skew_us=SECOND_US, held_max=1)
    for name in "acde":
        net.cut("b", name)
    for name in "cde":
        net.cut("a", name)
        net.broadcast(name, 100_000)
    net.flying.clear()
    net.pass_time(net.now_us + 5 * SECOND_US)
    for name in "cde":
        net.link("a", name)
    later(net, 10.0)  # a passes over all three
    net.link("a", "b")
    counts = []
    for _ in range(5):
        later(net, 1.3)
        counts.append(len(net.missed["b"]))
    assert counts == [1, 2, 3, 3, 3]
    assert {(each.stream, each.first, each.last, each.reason) for each in net.missed["b"]} == {
        (net.cores[name].origin, 1, 1, "expired") for name in "cde"
    }


def test_pasts_of_messages_are_bounded_by_the_numbers_in_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stability, "NUMBERS_MAX", 5_000)
    core = Log("b", [], stability=True)
    greeted(core)
    for at in range(1, 400):
        core.receive("a", LogPacket(DATA, named(at, 1), (), ((at, 1, 0, (), b"", 0),)), 0)
    kept = core.stability
    assert kept is not None
    assert sum(map(len, kept.pasts.values())) + sum(map(len, kept.knows.values())) <= 5_000 + 400
    assert len(core.ledger.names) == 401


def test_the_oldest_keys_are_forgotten() -> None:
    core = Log("b", [], book=MemoryBook(keys_max=3))
    for at in range(5):
        core.broadcast_once(b"%d" % at, b"x", 0)
    assert [core.id_of(b"%d" % at) is None for at in range(5)] == [True, True, False, False, False]


def test_a_hello_grants_nothing_but_a_session() -> None:
    """Who says that it is a member, of whatever name and life, is none, and makes no one else a member."""
    core = Log("b", [], stability=True, alone_us=1 << 40)
    for peer in ("a", "m"):
        core.link_up(peer, 0)
        hello = LogPacket(HELLO, ((0, stream_of(peer, life_of(peer, 9))),), (1, MEMBER, 0, 0))
        core.receive(peer, hello, 0)
        core.receive(peer, LogPacket(HAVE, (), (WHOLE,)), 0)
    for second in range(1, 60):
        core.timer("tick", second * SECOND_US)
    assert core.stability is not None
    assert not core.ready
    assert core.stability.admitted == set()
    assert core.stable() == {}


def test_a_peer_cannot_make_streams_without_end() -> None:
    core = Log("b", [], streams_max=5)
    core.link_up("a", 0)
    core.receive("a", LogPacket(HELLO, ((0, stream_of("a", life_of("a", 0))),), (1, 0, 0, 0)), 0)
    names = tuple((at, stream_of(f"n{at}", life_of("n", at))) for at in range(1, 50))
    core.receive("a", LogPacket(2, names, (0,)), 0)
    assert len(core.ledger.names) == 5


def test_a_peer_cannot_make_a_node_hold_without_end() -> None:
    core = Log("b", [], held_max=10)
    core.link_up("a", 0)
    core.receive("a", LogPacket(HELLO, ((0, stream_of("a", life_of("a", 0))),), (1, 0, 0, 0)), 0)
    for number in range(2, 100):
        core.receive("a", LogPacket(DATA, (), (), ((0, number, 0, (), b"", 0),)), 0)
    assert core.waiting == 10


def test_a_sender_never_has_more_under_way_than_the_window() -> None:
    net = Net("log", "ab", step_us=1, check=True, window=8)
    net.settle()
    for _ in range(50):
        net.broadcast("a")
    assert sum(len(flight.packet.items) for flight in net.flying) == 8
    later(net)
    assert len(net.ids("b")) == 50


def test_steps_that_send_the_same_to_many_send_one_packet() -> None:
    net = group("abcd")
    said(net, *"abcd")
    effects = net.cores["a"].broadcast(b"x", net.now_us)
    sends = [effect for effect in effects if isinstance(effect, Send)]
    assert [effect.to for effect in sends] == [("b", "c", "d")]


def _told(effects: Effects) -> list[tuple[str, int, bytes, int]]:
    """What is delivered, with its place in the log: one by one, or as runs."""
    found = []
    for each in effects:
        if isinstance(each, Deliver):
            assert not each.late
            found.append((*each.message, each.lsn))
        elif isinstance(each, Logged):
            assert each.payload_bytes == sum(len(entry[4]) for entry in each.entries)
            for lsn, entry in enumerate(each.entries, each.lsn):
                found.append((each.stream, entry[1], entry[4], lsn))
    return found


def _sent(effects: Effects) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """What goes to each peer: messages, and all other packets."""
    items: dict[str, list[Any]] = {}
    others: dict[str, list[Any]] = {}
    for each in effects:
        if isinstance(each, Send):
            for peer in each.to:
                if each.packet.kind == DATA:
                    items.setdefault(peer, []).extend(each.packet.items)
                else:
                    others.setdefault(peer, []).append(each.packet)
    return items, others


def test_what_stands_between_the_messages_of_a_run_is_logged_between_them() -> None:
    net = group("ab")
    a, b = net.cores["a"], net.cores["b"]
    items = [(b.own, number, 0, (), b"x", CONTROL if number == 3 else APP) for number in (1, 2, 3, 4, 5)]
    twice = (*items[:4], items[1], items[4])
    effects = a.receive_together("b", [LogPacket(DATA, (), (), twice)], net.now_us)
    assert [(number, lsn) for _, number, _, lsn in _told(effects)] == [(1, 1), (2, 2), (4, 4), (5, 5)]
    assert [entry[1] for entry in a.book.read(1, 9)] == [1, 2, 3, 4, 5]
    assert [each.reason for each in effects if isinstance(each, Discard)] == [Reason.DUPLICATE]
    a.check()


@pytest.mark.parametrize("shape", ["mesh", "line"])
@pytest.mark.parametrize("seed", range(20))
def test_packets_that_arrive_together_are_taken_as_one_by_one(seed: int, shape: str) -> None:
    """Only how messages are put into packets may differ: not what is delivered, held, kept or said next."""
    draw = random.Random(seed)
    options = {"held_max": draw.choice([5, 10_000]), "window": draw.choice([3, 256])}
    pairs = None if shape == "mesh" else ["ba", "ac", "cd"]
    net = Net("log", "abcd", pairs, step_us=1, **options)
    net.settle()
    one = net.cores["a"]
    together = Log("a", [], **options)
    together.restore(deepcopy(one.save()))
    one._cork_every_us = together._cork_every_us = draw.choice([0, 20])
    told: list[list[Any]] = [[], []]

    def both(found: Effects, shadow: Effects) -> None:
        for into, effects in enumerate((found, shadow)):
            told[into] += _told(effects)
        assert _sent(found) == _sent(shadow)
        net.carry_out("a", found)

    def arrive(at: int) -> None:
        """At `a` a burst of one link, of which the shadow is told at once."""
        sender = net.flying[at].sender
        mine = [flight for flight in net.flying if (flight.sender, flight.to) == (sender, "a")]
        burst = mine[: draw.randint(1, 5)]
        for flight in burst:
            net.flying.remove(flight)
        packets = [flight.packet for flight in burst]
        found = [effect for packet in packets for effect in one.receive(sender, packet, net.now_us)]
        both(found, together.receive_together(sender, packets, net.now_us))

    for step in range(600):
        if step < 400 and draw.random() < 0.2:
            sender = draw.choice("abcd")
            if sender == "a":
                both(one.broadcast(b"own", net.now_us), together.broadcast(b"own", net.now_us))
            else:
                net.broadcast(sender)
        elif net.flying:
            at = draw.choice(net.heads())
            if net.flying[at].to == "a":
                arrive(at)
            else:
                net.arrive(at)
    assert told[0] == told[1]
    assert len(told[0]) > 20
    assert one.ledger.newest == together.ledger.newest
    assert one.order.save() == together.order.save()
    assert one.book.save() == together.book.save()
    assert one.exchange.save() == together.exchange.save()
    together.check()


@pytest.mark.parametrize(
    "news",
    [Joined("ann"), Left("ann"), Suspected("ann"), RolledBack("1f", 2, 7), OtherLife("1f"),
     Retired("ann", "1f"), Forked("ann", "1f", 7), Rejoined("a blackout")],
    ids=lambda news: type(news).__name__,
)  # fmt: skip
def test_news_is_a_sentence_that_has_all_its_parts(news: News) -> None:
    said = in_words(news)
    assert all(str(part) in said for part in news)
    assert "(name=" not in said

"""What the verifier finds, in examples small enough to check by eye. The oracle is in tests/property."""

from __future__ import annotations

import msgspec
import pytest

from support.traces import Run, parse, record, verify
from whence.errors import TraceError
from whence.trace.memory import MemoryTrace
from whence.trace.schema import Kind, PromisesMade
from whence.verify.report import Counts, RunReport
from whence.verify.run import verify_events, verify_table


def counts(run: Run, members: list[str] | None = None) -> Counts:
    return verify(run, members).counts


def test_a_good_run_is_ok() -> None:
    report = verify(parse(a="b:a1 d:a1 d:b1", b="d:a1 b:b1 d:b1", c="d:a1 d:b1"))
    assert report.ok
    assert report.counts == Counts()
    assert report.findings == []
    assert (report.nodes, report.events, report.broadcasts, report.deliveries) == (3, 8, 2, 6)


def test_a_message_before_the_one_it_depends_on_with_its_witness() -> None:
    report = verify(parse(a="b:a1 d:a1 d:b1", b="d:a1 b:b1 d:b1", c="d:b1 d:a1"))
    assert not report.ok
    assert report.counts == Counts(causal=1)
    (finding,) = report.findings
    assert (finding.node, finding.message, finding.seq) == ("c", "a:1", 1)
    assert (finding.other, finding.other_seq) == ("b:1", 0)
    assert [str(step) for step in finding.chain] == [
        "a broadcasts a:1 (seq 0)",
        "b delivers a:1 (seq 0)",
        "b broadcasts b:1 (seq 1)",
    ]


def test_concurrent_messages_come_in_any_order() -> None:
    run = parse(a="b:a1 d:a1 d:b1", b="b:b1 d:b1 d:a1", c="d:a1 d:b1", d="d:b1 d:a1")
    assert verify(run).ok


def test_precedence_through_a_message_that_is_never_delivered() -> None:
    """m1 -> m2 -> m3, and d never delivers m2: m3 before m1 is still a violation."""
    run = parse(a="b:a1 d:a1 d:b1 d:c1", b="d:a1 b:b1 d:b1 d:c1", c="d:a1 d:b1 b:c1 d:c1", d="d:c1 d:a1")
    report = verify(run)
    assert report.counts == Counts(causal=1, missing=1)
    causal, missing = report.findings
    assert (causal.node, causal.message, causal.other) == ("d", "a:1", "c:1")
    assert (missing.node, missing.message) == ("d", "b:1")


def test_one_finding_for_each_late_delivery() -> None:
    """c delivers b1 first: both a1 and a2 are late, a2 -> b1 and a1 -> b1; their own order is right."""
    run = parse(a="b:a1 d:a1 b:a2 d:a2 d:b1", b="d:a1 d:a2 b:b1 d:b1", c="d:b1 d:a1 d:a2")
    assert counts(run) == Counts(causal=2)


def test_messages_of_one_origin_out_of_order_are_fifo_and_causal() -> None:
    report = verify(parse(a="b:a1 d:a1 b:a2 d:a2", b="d:a2 d:a1"))
    assert report.counts == Counts(causal=1, fifo=1)
    causal, fifo = report.findings
    for finding in (causal, fifo):
        assert (finding.message, finding.other) == ("a:1", "a:2")
        assert [str(step) for step in finding.chain] == [
            "a broadcasts a:1 (seq 0)",
            "a broadcasts a:2 (seq 2)",
        ]


def test_late_self_delivery_is_no_violation_by_itself() -> None:
    assert verify(parse(a="b:a1 b:a2 d:a1 d:a2", b="d:a1 d:a2")).ok
    assert verify(parse(a="b:a1 d:b1 d:a1", b="b:b1 d:b1 d:a1")).ok  # concurrent


def test_self_delivery_after_a_reply_is_one() -> None:
    report = verify(parse(a="b:a1 d:b1 d:a1", b="d:a1 b:b1 d:b1"))
    assert report.counts == Counts(causal=1)
    assert (report.findings[0].node, report.findings[0].message) == ("a", "a:1")


def test_own_messages_in_the_wrong_order() -> None:
    assert counts(parse(a="b:a1 b:a2 d:a2 d:a1", b="d:a1 d:a2")) == Counts(causal=1, fifo=1)


def test_a_broadcast_counts_for_later_ones_before_its_self_delivery() -> None:
    """a2 depends on a1 although a has not delivered a1 to itself yet."""
    run = parse(a="b:a1 b:a2 d:a1 d:a2 d:b1", b="d:a1 d:a2 b:b1 d:b1", c="d:b1 d:a1 d:a2")
    assert counts(run) == Counts(causal=2)


def test_a_node_must_deliver_its_own_messages() -> None:
    report = verify(parse(a="b:a1", b="d:a1"))
    assert report.counts == Counts(missing=1)
    assert report.missing_by_node == {"a": 1}


def test_duplicates_are_not_inversions() -> None:
    report = verify(parse(a="b:a1 d:a1 b:a2 d:a2", b="d:a1 d:a2 d:a1 d:a1"))
    assert report.counts == Counts(duplicate=2)
    assert report.findings[0].detail == "delivered before, at seq 0"


def test_a_created_message() -> None:
    report = verify(parse(a="b:a1 d:a1", b="d:a1 d:a7 d:z1 d:z1"))
    assert report.counts == Counts(created=2, duplicate=1)
    assert [finding.message for finding in report.findings if finding.kind == "created"] == ["a:7", "z:1"]


def test_members_without_events_miss_everything() -> None:
    report = verify(parse(a="b:a1 d:a1"), members=["a", "b", "c"])
    assert report.missing_by_node == {"b": 1, "c": 1}
    assert report.nodes == 3


def test_expired_messages_are_not_missing() -> None:
    assert verify(parse(a="b:a1 d:a1", b="x:a1")).ok


@pytest.mark.parametrize(
    ("run", "missing"),
    [
        (parse(a="b:a1 d:a1", b="crash"), {}),  # b need not deliver any more
        (parse(a="b:a1 d:a1", b="crash restart"), {"b": 1}),
        (parse(a="b:a1 d:a1", b="crash restart crash"), {}),
        (parse(a="b:a1 d:a1 crash", b="", c=""), {}),  # nobody alive has it
        (parse(a="b:a1 d:a1 crash", b="d:a1", c="s:a1"), {"c": 1}),  # a survivor delivered it: all must
        (parse(a="b:a1 crash restart", b="s:a1"), {"a": 1, "b": 1}),
    ],
)
def test_only_survivors_must_deliver(run: Run, missing: dict[str, int]) -> None:
    assert verify(run, members=list(run)).missing_by_node == missing


def test_what_is_malformed() -> None:
    broken = parse(a="b:a1 d:a1 b:a3 b:a3 b:b9 x:c1 d:a3")
    details = [finding.detail for finding in verify(broken).findings if finding.kind == "malformed"]
    assert [detail[:35] for detail in details] == [
        "this node's next broadcast should h",
        "the same message is broadcast a sec",
        "a node broadcasts a message of anot",
        "it expires a message that was never",
    ]


def test_a_delivery_before_its_own_broadcast() -> None:
    report = verify(parse(a="d:a1 b:a1"))
    assert report.counts == Counts(malformed=1)
    assert "depends on this very delivery" in report.findings[0].detail


def test_a_circle_of_deliveries_does_not_hang() -> None:
    """Each delivers the other's message before it broadcasts its own: one of the two cannot be true."""
    report = verify(parse(a="d:b1 b:a1 d:a1", b="d:a1 b:b1 d:b1", c="d:a1 d:b1"))
    assert report.counts == Counts(malformed=1)
    assert report.findings[0].node == "a"


def test_holes_in_the_numbers_do_not_disturb_the_order() -> None:
    run = parse(a="b:a10 d:a10 b:a20 d:a20", b="d:a20 d:a10")
    assert counts(run) == Counts(causal=1, fifo=1, malformed=2)


def test_numbers_may_go_on_anywhere_after_a_restart_but_only_forward() -> None:
    assert verify(parse(a="restart b:a10 d:a10 b:a11 d:a11", b="d:a10 d:a11")).ok
    assert verify(parse(a="b:a1 d:a1 restart b:a10 d:a10", b="d:a1 d:a10")).ok
    assert counts(parse(a="b:a9 d:a9 restart b:a5 d:a5")) == Counts(malformed=2)
    assert counts(parse(a="restart b:a9 d:a9 b:a20 d:a20")) == Counts(malformed=1)


def test_promises_decide_what_is_demanded() -> None:
    late = parse(a="b:a1 d:a1 d:b1", b="d:a1 b:b1 d:b1", c="d:b1 d:a1")
    assert verify(late, promises=PromisesMade(causal=False, complete=True)).ok
    swapped = parse(a="b:a1 d:a1 b:a2 d:a2", b="d:a2 d:a1")
    no_causal = PromisesMade(causal=False)
    assert not verify(swapped, promises=no_causal).ok  # FIFO is still promised
    assert verify(swapped, promises=PromisesMade(causal=False, fifo=False)).ok
    twice = parse(a="b:a1 d:a1 d:a1")
    assert not verify(twice).ok
    assert verify(twice, promises=PromisesMade(no_duplicates=False)).ok
    short = parse(a="b:a1 d:a1", b="s:a1")
    assert not verify(short).ok
    assert verify(short, promises=PromisesMade(complete=False)).ok
    nothing = PromisesMade(causal=False, fifo=False, no_duplicates=False, complete=False)
    assert not verify(parse(a="d:z1"), promises=nothing).ok  # invention is never allowed
    assert verify(swapped, promises=PromisesMade(causal=False)).broken == ["fifo"]


def test_ranks_beyond_16_bits() -> None:
    """More than 32,767 messages of one origin need wider vectors."""
    memory = MemoryTrace()
    last = 33_000
    for number in range(1, last + 1):
        memory.event("a", number, Kind.BROADCAST, "a", number)
        memory.event("a", number, Kind.DELIVER, "a", number)
    order = [*range(1, last - 1), last, last - 1]
    for number in order:
        memory.event("b", number, Kind.DELIVER, "a", number)
    report = verify_table(memory.table("r"), PromisesMade(complete=True), ["a", "b"])
    assert report.counts == Counts(causal=1, fifo=1)
    assert report.findings[0].message == f"a:{last - 1}"


def test_an_empty_run() -> None:
    report = verify_table(MemoryTrace().table("r"), PromisesMade(), [], run="r")
    assert report.ok
    assert (report.run, report.nodes, report.events) == ("r", 0, 0)


def test_rows_that_are_missing_are_an_error_and_not_a_finding() -> None:
    table = record(parse(a="b:a1 d:a1 b:a2 d:a2")).table("r", segment_events=1)
    with pytest.raises(TraceError, match="should begin with seq 1 begins with 2"):
        verify_table(table.filter([True, False, True, True]), PromisesMade(), ["a"])


def test_rows_of_two_runs_are_an_error() -> None:
    import pyarrow as pa

    table = pa.concat_tables([record(parse(a="b:a1")).table(run) for run in ("r1", "r2")])
    with pytest.raises(TraceError, match="several runs"):
        verify_table(table, PromisesMade(), ["a"])


def test_events_of_the_flat_view_give_the_same_report() -> None:
    from whence.trace.reader import Event

    run = parse(a="b:a1 d:a1 d:b1", b="d:a1 b:b1 d:b1", c="d:b1 d:a1")
    events = [
        Event("r", node, seq, 0, kind, origin, number, None, 0, 0, None)
        for node, rows in run.items()
        for seq, (kind, origin, number) in enumerate(rows)
    ]
    assert verify_events(events, PromisesMade(complete=True), list(run), None) == verify(run)


def test_a_report_survives_json() -> None:
    report = verify(parse(a="b:a1 d:a1 b:a2 d:a2 d:a2", b="d:a2 d:a1 d:z1"))
    assert msgspec.json.decode(msgspec.json.encode(report), type=RunReport) == report


# Lifetimes

TIMELY = PromisesMade(complete=True, timely=True)


def test_a_delivery_after_the_lifetime_is_late_with_its_two_times() -> None:
    run = parse(a="b:a1 d:a1", b="d:a1", c="d:a1")
    timing = {("a", 0): (100, "500"), ("a", 1): (100, None), ("b", 0): (600, None), ("c", 0): (601, None)}
    report = verify(run, promises=TIMELY, timing=timing)
    assert report.counts == Counts(late=1)  # b's is just in time
    assert report.broken == ["late"]
    (finding,) = report.findings
    assert (finding.node, finding.message, finding.seq) == ("c", "a:1", 0)
    assert (finding.broadcast_us, finding.delivered_us) == (100, 601)
    assert finding.detail == "delivered 501 us after its broadcast, with a lifetime of 500 us"
    assert [str(step) for step in finding.chain] == ["a broadcasts a:1 (seq 0)", "c delivers a:1 (seq 0)"]
    assert verify(run, promises=msgspec.structs.replace(TIMELY, clock_slack_us=1), timing=timing).ok
    unpromised = verify(run, timing=timing)
    assert unpromised.ok
    assert unpromised.counts == Counts()  # times are not even looked at


def test_without_a_lifetime_nothing_is_late() -> None:
    timing = {("a", 0): (0, None), ("a", 1): (0, None), ("b", 0): (10**15, None)}
    assert verify(parse(a="b:a1 d:a1", b="d:a1"), promises=TIMELY, timing=timing).ok


def test_a_table_without_times_cannot_be_judged_for_lateness() -> None:
    table = record(parse(a="b:a1 d:a1")).table("r").drop_columns(["time_us"])
    assert verify_table(table, PromisesMade(), ["a"]).ok
    with pytest.raises(TraceError, match="'time_us' is missing"):
        verify_table(table, TIMELY, ["a"])


def test_an_expired_message_is_accounted_for() -> None:
    assert verify(parse(a="b:a1 d:a1", b="x:a1")).ok
    report = verify(parse(a="b:a1 d:a1", b="x:a1", c=""))
    assert report.counts == Counts(missing=1)  # c has nothing to say about it
    assert report.missing_by_node == {"c": 1}


def test_an_expired_predecessor_blocks_nothing() -> None:
    """c gives a1 up and delivers b1, which depends on it; but not a1 afterwards."""
    assert verify(parse(a="b:a1 d:a1 d:b1", b="d:a1 b:b1 d:b1", c="x:a1 d:b1")).ok
    report = verify(parse(a="b:a1 d:a1 d:b1", b="d:a1 b:b1 d:b1", c="x:a1 d:b1 d:a1"))
    assert report.counts == Counts(causal=1, malformed=1)


@pytest.mark.parametrize(
    ("rows", "expected", "detail"),
    [
        ("x:a1 d:a1", Counts(malformed=1), "delivered, although it had ended here before, at seq 0"),
        ("d:a1 x:a1", Counts(malformed=1), "expired, although it had ended here before, at seq 0"),
        ("x:a1 x:a1", Counts(malformed=1), "expired, although it had ended here before, at seq 0"),
        ("x:a1 d:a1 d:a1", Counts(malformed=1, duplicate=1), "delivered before, at seq 1"),
    ],
)
def test_a_message_ends_once(rows: str, expected: Counts, detail: str) -> None:
    report = verify(parse(a="b:a1 d:a1", b=rows))
    assert report.counts == expected
    assert report.findings[0].detail == detail
    assert not verify(parse(a="b:a1 d:a1", b=rows), promises=PromisesMade(no_duplicates=False)).ok


def test_a_delivery_after_the_expiry_still_has_followers() -> None:
    """b delivers a1 after giving it up; what it broadcasts then depends on a1 all the same."""
    run = parse(a="b:a1 d:a1 d:b1", b="x:a1 d:a1 b:b1 d:b1", c="d:b1 d:a1")
    assert verify(run).counts == Counts(causal=1, malformed=1)


@pytest.mark.parametrize("text", ["", "soon", "-1", "1.5", "9223372036854775808", "1" * 500])
def test_a_lifetime_must_be_a_number(text: str) -> None:
    timing = {("a", 0): (0, text), ("a", 1): (9, None)}
    report = verify(parse(a="b:a1 d:a1"), promises=TIMELY, timing=timing)
    assert report.counts == Counts(malformed=1)
    assert "lifetime" in report.findings[0].detail


def test_a_manifest_without_the_promise_of_time_still_reads() -> None:
    old = b'{"causal": true, "fifo": true, "no_duplicates": true, "complete": true}'
    assert msgspec.json.decode(old, type=PromisesMade) == PromisesMade(complete=True)

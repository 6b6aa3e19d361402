"""The verdict of the verifier: findings with their witnesses, and one report per run."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from whence.trace.schema import PromisesMade

Progress = Callable[[str, int], None]  # what is being done, and how many more events have been gone through

WITNESS_MAX = 10  # findings of one kind that a report spells out; the counts are always exact

# The kinds of finding, in the order of a report.
KINDS = ("causal", "fifo", "duplicate", "late", "created", "missing", "malformed")


class ChainStep(msgspec.Struct, frozen=True):
    """One event of a chain. The next one is later at the same node, or delivers what this one began."""

    event: str  # "broadcast", "send" (to one node) or "deliver"
    message: str
    node: str
    seq: int

    def __str__(self) -> str:
        return f"{self.node} {self.event}s {self.message} (seq {self.seq})"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong at one node."""

    kind: str
    node: str
    message: str  # "origin:number"
    seq: int | None = None  # the event at `node` that is wrong; None for a message that is missing
    other: str | None = None  # causal, fifo: the message that overtook this one
    other_seq: int | None = None
    chain: list[ChainStep] = []  # causal: what makes `message` precede `other`; late: broadcast and delivery
    broadcast_us: int | None = None  # late: the times of the two
    delivered_us: int | None = None
    detail: str


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How many findings there are of each kind; docs/verification.md says what counts as one."""

    causal: int = 0
    fifo: int = 0
    duplicate: int = 0
    late: int = 0
    created: int = 0
    missing: int = 0
    malformed: int = 0


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one run. Equal for equal events, however they are stored or split."""

    run: str
    protocol: str
    ok: bool  # nothing is broken that `promises` demands
    promises: PromisesMade
    nodes: int
    events: int
    broadcasts: int
    deliveries: int
    expiries: int
    counts: Counts
    missing_by_node: dict[str, int]  # nodes that miss something, and how many messages
    findings: list[Finding]
    unfinished: bool | msgspec.UnsetType = msgspec.UNSET  # true: the run was interrupted

    @property
    def broken(self) -> list[str]:
        """The kinds of finding that were made although the promises exclude them."""
        demanded = demanded_kinds(self.promises)
        return [kind for kind in KINDS if kind in demanded and getattr(self.counts, kind)]


def demanded_kinds(promises: PromisesMade) -> set[str]:
    """The kinds of finding that break one of the promises. Two are never allowed."""
    made = {
        "causal": promises.causal,
        "fifo": promises.fifo,
        "duplicate": promises.no_duplicates,
        "late": promises.timely,
        "missing": promises.complete,
        "created": True,
        "malformed": True,
    }
    return {kind for kind, demanded in made.items() if demanded}

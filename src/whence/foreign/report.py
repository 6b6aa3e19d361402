"""The verdict on a foreign log: per property what was found, what was judged, and what could not be."""

from __future__ import annotations

import msgspec

from whence.foreign.model import Contract, Note

PROPERTIES = (
    "causal", "fifo", "duplicate", "created", "lost", "stuck", "clock", "cycle", "time", "reads",
)  # fmt: skip
OK, BROKEN, SEEN, NOT_JUDGED = "ok", "broken", "seen", "not judged"
EXITS = {"ok": 0, "broken": 1, "unknown": 3}
FINDINGS_MAX = 10  # findings of one property that a report spells out; counts are always exact


class AuditStep(msgspec.Struct, frozen=True):
    """One step of a chain of causes: an event, and what makes the one before it a cause."""

    event: str
    by: str = ""  # order, message, dependency, link, rank, clock, read, interval; "" for the first


class AuditFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong. `events` are the numbers of the log's events that show it."""

    text: str
    message: str | None = None
    other: str | None = None  # the message that overtook it
    scope: str | None = None
    line: int | None = None
    events: list[int] = []
    chain: list[AuditStep] = []


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """One property."""

    status: str  # ok, broken, seen (found, but nothing forbids it), not judged
    count: int = 0
    judged: int = 0  # how many things were looked at
    why: str = ""  # why it is not judged
    remedy: str = ""  # the column or option that would change that
    findings: list[AuditFinding] = []


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """The whole verdict."""

    source: str
    verdict: str  # ok, broken, unknown
    exit: int
    events: int
    order: str  # where places in a context come from
    contract: Contract
    properties: dict[str, Judged]
    notes: list[Note]

    @property
    def judged(self) -> list[str]:
        """The properties that were judged."""
        return [name for name, each in self.properties.items() if each.status != NOT_JUDGED]

    @property
    def not_judged(self) -> list[str]:
        """Those that were not."""
        return [name for name, each in self.properties.items() if each.status == NOT_JUDGED]

    def counts(self, status: str) -> dict[str, int]:
        """How many findings there are of each property of that status."""
        return {name: each.count for name, each in self.properties.items() if each.status == status}

    def headline(self) -> str:
        """The first line: the verdict and both lists."""
        found = ", ".join(f"{name} {count}" for name, count in self.counts(BROKEN).items())
        judged, not_judged = (", ".join(names) or "nothing" for names in (self.judged, self.not_judged))
        return f"{self.verdict}{': ' + found if found else ''} (judged: {judged}; not judged: {not_judged})"


def text_of(audit: Audit, shown: int = 3) -> str:
    """The verdict for a reader."""
    lines = [audit.headline(), f"{audit.source}: {audit.events} events, ordered by {audit.order}"]
    for name, each in audit.properties.items():
        if each.status == NOT_JUDGED:
            lines.append(f"  {name}: not judged: {each.why}; {each.remedy}")
        else:
            tail = {SEEN: f"{each.count} seen, which nothing forbids", BROKEN: f"{each.count} found"}
            lines.append(f"  {name}: {tail.get(each.status, 'ok')} (of {each.judged})")
        for finding in each.findings[:shown]:
            lines.append(f"    {finding.text}")
            lines += [f"      {step.event}{f' [{step.by}]' if step.by else ''}" for step in finding.chain]
    lines += [f"note ({note.code}): {note.text}" for note in audit.notes]
    return "\n".join(lines)


def verdict_of(
    properties: dict[str, Judged], demanded: set[str], required: set[str]
) -> tuple[str, dict[str, Judged]]:
    """The word of the verdict, and the properties with their final status."""
    made = {}
    for name in PROPERTIES:
        each = properties[name]
        if each.status != NOT_JUDGED:
            status = OK if not each.count else BROKEN if name in demanded | required else SEEN
            each = msgspec.structs.replace(each, status=status)
        made[name] = each
    if any(each.status == BROKEN for each in made.values()):
        return "broken", made
    unjudged = {name for name, each in made.items() if each.status == NOT_JUDGED}
    return ("unknown" if required & unjudged or len(unjudged) == len(PROPERTIES) else "ok"), made


def demands(contract: Contract, spans: bool) -> tuple[set[str], set[str]]:
    """What is demanded where it can be judged, and what is required whether it can or not."""
    demanded = {"clock", "cycle", "created", "reads"}
    required = set(contract.require)
    if contract.order is None:
        demanded |= {"fifo"} if spans else {"causal", "fifo"}
    elif contract.order != "none":
        demanded |= {"causal", "fifo"} if contract.order == "causal" else {"fifo"}
        required.add(contract.order)
    if contract.delivery in {"exactly-once", "at-most-once"}:
        required.add("duplicate")
    if "deliveries" in contract.complete and contract.delivery != "at-most-once":
        demanded |= {"lost", "stuck"}
    if contract.max_skew_ns is not None:
        required.add("time")
    return demanded, required

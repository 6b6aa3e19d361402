"""The judge of a storm: reads what the applications wrote down, and knows nothing of ours.

    identity    no id names two payloads
    once        no process is given a message twice; nor one that comes back with its store, but for what it
                was given within `DONE_S` of its end
    order       whoever is given m and m', where m' was said by one that had m, is given m first; `fifo`: only
                where both were said by one process
    silence     what was acknowledged reaches whoever was there throughout, or it is told that it misses it
    agreement   of a sender that died: if one that was there throughout has it, all such have it or are told
    going on    no group ended before it was left

"There throughout" is a chain: a process, or the openings of one store of which nothing was lost. A process
that says it has rejoined begins another chain.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DONE_S = 5.0
_MISSED = re.compile(r"(.*) (\d+) to (\d+): (.*)", re.DOTALL)


@dataclass
class Chain:
    """A process, or the openings of one store of which nothing was lost."""

    node: str
    begins_s: float
    got: dict[str, float] = field(default_factory=dict)  # name of a message -> when
    missed: list[tuple[str, int, int, float]] = field(default_factory=list)  # origin, first, last, when
    is_last: bool = True  # of its node: it was there in the end


@dataclass
class Sent:
    """A message that was acknowledged to its sender."""

    name: str
    origin: str
    number: int
    to: str | None
    at_s: float
    chain: Chain


@dataclass
class Verdict:
    """What is wrong, and how much was looked at."""

    problems: list[str] = field(default_factory=list)
    sent: int = 0
    got: int = 0
    missed: int = 0
    judged: int = 0  # pairs of an acknowledged message and one that was there throughout


class Judge:
    """Reads the logs of one storm; `verdict` has what they say."""

    def __init__(
        self,
        *,
        is_causal: bool = True,
        completes: bool = True,
        agrees: bool = True,
        via: dict[str, str] | None = None,
    ) -> None:
        self.via = via or {}  # "ad": "c" where messages from a to d pass through c, and are lost with it
        self.is_causal = is_causal
        self.completes = completes  # what is acknowledged arrives: not under deadlines
        self.agrees = agrees
        self.is_ordered = True  # the log has the order in which messages were given
        self.verdict = Verdict()
        self._payloads: dict[tuple[str, str, int], str] = {}
        self._past: dict[str, list[str]] = {}
        self._chains: dict[str, list[Chain]] = defaultdict(list)
        self._sent: list[Sent] = []
        self._orders: list[tuple[str, list[str]]] = []  # of each process, what it was given in order
        self._void: set[str] = set()  # said by a life that was over when it left: their past means nothing
        self._befores: dict[str, int] = {}
        self._bits: dict[str, int] = {}

    def read(self, node: str, path: Path, *, is_twin: bool = False) -> None:
        """Read the log of one member; a twin runs on a copy of its store."""
        if not path.exists():
            return
        chain: Chain | None = None
        order: list[str] = []
        open_: set[str] = set()  # said, and neither sent nor refused
        given_before: dict[str, float] = {}
        end_s = before_end_s = 0.0
        how = "fresh"
        for text in path.read_text().splitlines():
            try:
                kind, *fields, at_s = json.loads(text)
            except ValueError:
                continue  # cut in the middle of a word
            if kind == "start":  # written by the driver
                if how == "same":  # one killed before it opened anything has lost its store all the same
                    how = fields[0]
                continue
            if kind == "open":
                before = chain
                chain = before if how == "same" and before is not None else Chain(node, at_s)
                if chain is not before and not is_twin:
                    self._begin(chain)
                how = "same"
                order = []
                self._orders.append((node, order))
                given_before = dict(chain.got)
                before_end_s = end_s
            elif chain is None:
                continue
            elif kind == "got":
                origin, life, number, name, past = fields
                self._name(origin, life, number, name, node)
                self._past[name] = past
                if name in order:
                    self._wrong(f"once: {node} is given {name} twice")
                elif name in given_before and before_end_s - given_before[name] > DONE_S:
                    self._wrong(
                        f"once: {node} is given {name} again, {before_end_s - given_before[name]:.1f} s "
                        "after it was done with it"
                    )
                order.append(name)
                chain.got.setdefault(name, at_s)
                self.verdict.got += 1
            elif kind == "says":
                name, past, _ = fields
                self._past[name] = past
                open_.add(name)
            elif kind == "sent":
                origin, life, number, name, to = fields
                self._name(origin, life, number, name, node)
                if not is_twin:
                    self._sent.append(Sent(name, origin, number, to, at_s, chain))
                self.verdict.sent += 1
                open_.discard(name)
            elif kind == "refused":
                open_.discard(fields[0])
            elif kind == "rejoined":
                chain = Chain(node, at_s)
                self._begin(chain)
                order = []
                self._orders.append((node, order))
                given_before = {}
                self._void |= open_
            elif kind == "expired":
                chain.missed.append((fields[0], fields[1], fields[1], at_s))
            elif kind == "told" and not is_twin:
                self._hear(chain, *fields, at_s)
            elif kind == "ended" and fields[0]:
                self._wrong(f"going on: the group of {node} ended: {fields[0]}")
            end_s = at_s

    def _begin(self, chain: Chain) -> None:
        for earlier in self._chains[chain.node]:
            earlier.is_last = False
        self._chains[chain.node].append(chain)

    def _hear(self, chain: Chain, kind: str, _: str | None, detail: str, at_s: float) -> None:
        if kind == "missed" and (found := _MISSED.fullmatch(detail)):
            origin, first, last, _ = found.groups()
            chain.missed.append((origin, int(first), int(last), at_s))
            self.verdict.missed += 1

    def _name(self, origin: str, life: str, number: int, name: str, node: str) -> None:
        known = self._payloads.setdefault((origin, life, number), name)
        if known != name:
            self._wrong(f"identity: {origin}:{life}:{number} is {known}, and {name} at {node}")

    def _wrong(self, problem: str) -> None:
        if len(self.verdict.problems) < 50:
            self.verdict.problems.append(problem)

    # Order

    def judge(self) -> Verdict:
        """Judge all that was read."""
        for name in self._void:
            self._past[name] = []
        for node, order in self._orders if self.is_ordered else ():
            self._judge_order(node, order)
        if self.completes:
            self._judge_silence()
        return self.verdict

    def _judge_order(self, node: str, order: list[str]) -> None:
        later = 0
        for name in reversed(order):
            if wrong := self._before(name) & later:
                first = next(each for each, bit in self._bits.items() if wrong & bit)
                self._wrong(f"order: {node} is given {name} before {first}")
            later |= self._bits[name]

    def _before(self, name: str) -> int:
        """What happened before a message, as far as its senders named it: one bit for each."""
        stack = [name]
        while stack:
            top = stack[-1]
            past = [
                each for each in self._past.get(top, ()) if self.is_causal or _author(each) == _author(top)
            ]
            unknown = [each for each in past if each not in self._befores]
            if unknown:
                stack += unknown
                continue
            stack.pop()
            before = 0
            for each in past:
                before |= self._befores[each] | self._bits.setdefault(each, 1 << len(self._bits))
            self._befores[top] = before
            self._bits.setdefault(top, 1 << len(self._bits))
        return self._befores[name]

    # Silence

    def _judge_silence(self) -> None:
        lasting = [chains[-1] for chains in self._chains.values() if chains]
        for sent in self._sent:
            there = [
                chain
                for chain in lasting
                if chain.node != sent.origin and chain.begins_s < sent.at_s and sent.to in (None, chain.node)
            ]
            have = [chain for chain in there if sent.name in chain.got]
            if not sent.chain.is_last and not (self.agrees and have):
                continue
            router = self.via.get(f"{sent.origin}{sent.to}")
            if router is not None and self._chains[router][-1].begins_s > sent.at_s:
                continue
            self.verdict.judged += len(there)
            for chain in there:
                hops = [(sent.origin, chain)]
                if router is not None:  # whoever misses what one hop brought is told, and nobody else can be
                    hops = [(sent.origin, each) for each in self._chains[router]] + [(router, chain)]
                if sent.name not in chain.got and not any(self._is_told(*hop, sent) for hop in hops):
                    rule = "silence" if sent.chain.is_last else "agreement"
                    self._wrong(f"{rule}: {chain.node} never gets {sent.name} ({sent.origin}:{sent.number})")

    def _is_told(self, source: str, chain: Chain, sent: Sent) -> bool:
        for origin, first, last, at_s in chain.missed:
            if origin == sent.origin and first <= sent.number <= last:
                return True
            if origin.startswith(f"{source}>") and at_s > sent.at_s:
                return True  # numbers of pairs are not those of messages
        return False


def _author(name: str) -> list[str]:
    """The process that said it: node and opening."""
    return name.split(".")[:2]


def rounds_heard(path: Path) -> dict[str, set[str]]:
    """Of each round ("#n"), from whom its message was given to the process that runs now."""
    heard: dict[str, set[str]] = defaultdict(set)
    for text in path.read_text().splitlines():
        try:
            kind, *fields = json.loads(text)
        except ValueError:
            continue
        if kind == "open":
            heard.clear()
        elif kind == "got" and "#" in fields[3]:
            heard[fields[3].partition("#")[2].partition(">")[0]].add(fields[0])
    return heard


def summary(verdict: Verdict) -> dict[str, Any]:
    """The verdict as plain data."""
    return {key: getattr(verdict, key) for key in ("problems", "sent", "got", "missed", "judged")}

"""Storms for protocol `log`: random worlds on the one net, and an observer that knows nothing of cores.

An action is a broadcast, a packet that arrives, a link that goes up or down, a partition, a crash, a restart
with the store, without it, or with an old copy of it (a rollback), a second process on a copy of the store
(a clone), a node that joins, leaves or is retired, a reader that pauses, time that passes. In the end all is
healed.

The observer sees what applications see: broadcasts, deliveries, `Missed`, stable cuts. It keeps of every mind
(a store and whoever runs on it) what it has, and of every message all that happened before it, as sets.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from support.net import Net
from whence.core.effects import Deliver, Effects, Internal, Missed, Stable, Tell
from whence.core.lives import Forked
from whence.core.message import MessageId, NodeId
from whence.core.protocol import LEAVE
from whence.protocols.log.book import MemoryBook
from whence.protocols.log.core import Log

FAST: dict[str, int] = {
    "tick_us": 50_000, "pull_us": 150_000, "jump_us": 400_000, "ack_us": 100_000, "alone_us": 1_000_000,
    "suspect_us": 2_000_000,
}  # fmt: skip


class Mind:
    """What the application on one store has been given, over all lives of the store."""

    def __init__(self) -> None:
        self.delivered: set[MessageId] = set()
        self.accounted: dict[str, int] = {}  # of each stream, the newest number delivered or told as missed
        self.missed: set[MessageId] = set()
        self.before: set[MessageId] = set()  # everything that happened before what it does next
        self.stable: dict[str, int] = {}


class Observer:
    """Judges what applications see."""

    def __init__(self, clock: Callable[[NodeId], int]) -> None:
        self.clock = clock
        self.minds: dict[NodeId, Mind] = {}
        self.payloads: dict[MessageId, bytes] = {}
        self.before: dict[MessageId, frozenset[MessageId]] = {}
        self.deadlines: dict[MessageId, int] = {}
        self.found: Counter[str] = Counter()
        self.stories: list[str] = []
        self.late = 0
        self.deliveries = 0
        self.missed = 0

    def problem(self, kind: str, story: str) -> None:
        self.found[kind] += 1
        if len(self.stories) < 20:
            self.stories.append(f"{kind}: {story}")

    def broadcast(self, node: NodeId, id_: MessageId, payload: bytes, deadline_us: int | None) -> None:
        """A message begins: before it is delivered at its origin."""
        if id_ in self.payloads:
            self.problem("identity", f"{node} reuses {id_}")
        self.payloads[id_] = payload
        self.before[id_] = frozenset(self.minds[node].before)
        if deadline_us is not None:
            self.deadlines[id_] = deadline_us

    def effects(self, node: NodeId, effects: Effects) -> None:
        """What one step did."""
        for effect in effects:
            if isinstance(effect, Deliver | Internal):
                message = effect.message
                if isinstance(effect, Internal) and effect.speaks:
                    self.broadcast(node, message.id, message.payload, None)
                late = isinstance(effect, Deliver) and effect.late
                self._deliver(
                    node, message.id, message.payload, late=late, flagged=isinstance(effect, Deliver)
                )
            elif isinstance(effect, Missed):
                self._miss(node, effect)
            elif isinstance(effect, Stable):
                self.minds[node].stable.update(effect.cut)
            elif isinstance(effect, Tell) and isinstance(effect.news, Forked):
                self.problem("forked", f"{node} {effect.news}")  # no world forks a process in memory

    def _deliver(self, node: NodeId, id_: MessageId, payload: bytes, *, late: bool, flagged: bool) -> None:
        mind = self.minds[node]
        self.deliveries += 1
        if id_ in mind.delivered or id_ in mind.missed:
            self.problem("duplicate", f"{node} {id_}")
        if self.payloads.get(id_) != payload:
            self.problem("created", f"{node} {id_}")
            return
        now_us = self.clock(node)
        if self.deadlines.get(id_, now_us) < now_us:
            self.problem("dead", f"{node} {id_}")
        if mind.accounted.get(id_.origin, 0) + 1 != id_.number:
            self.problem("silent", f"{node} {id_} after {mind.accounted.get(id_.origin, 0)}")
        for past in self.before[id_] - mind.delivered - mind.missed:
            if self.deadlines.get(past, now_us) >= now_us:
                self.problem("causal", f"{node} delivers {id_} before {past}")
                break
        if late:
            self.late += 1
        elif flagged:
            for stream, number in mind.stable.items():
                if MessageId(stream, number) not in self.before[id_]:
                    self.problem("unflagged", f"{node} delivers {id_} beside stable {stream}:{number}")
                    break
        mind.delivered.add(id_)
        mind.accounted[id_.origin] = id_.number
        mind.before |= self.before[id_]
        mind.before.add(id_)

    def _miss(self, node: NodeId, missed: Missed) -> None:
        mind = self.minds[node]
        self.missed += 1
        if missed.reason == "unread":
            return
        if mind.accounted.get(missed.stream, 0) + 1 != missed.first or missed.last < missed.first:
            self.problem("accounting", f"{node} {missed}")
        mind.missed |= {MessageId(missed.stream, number) for number in range(missed.first, missed.last + 1)}
        mind.accounted[missed.stream] = missed.last


class Node:
    """One process: its store and its mind outlive it."""

    def __init__(self, name: NodeId, mind: Mind, book: MemoryBook) -> None:
        self.name = name  # what it calls itself
        self.mind = mind
        self.book = book
        self.copies: list[tuple[Any, Mind]] = []  # backups
        self.is_up = True


class LogWorld:
    """One random world. `make` may be a mutant of the core."""

    def __init__(
        self, seed: int, make: Callable[..., Log] = Log, clean: bool | None = None, **fixed: Any
    ) -> None:
        self.draw = draw = random.Random(f"log {seed}")
        self.make = make
        chained = random.Random(f"chain {seed}").random() < 0.1
        self.params: dict[str, Any] = {**FAST, **self._drawn_params(), "chain": chained, **fixed}
        self.stability = bool(self.params.get("stability"))
        self.timed = bool(self.params.get("lifetimes"))
        keeps = self.params.get("keep", "forever") == "forever" and self.params.get("history") != "new"
        self.keeps_all = keeps and not self.timed
        skew_us = self.params.get("skew_us", 0)
        names = "abcdef"[: draw.randint(2, 5)]
        # Clean: no clones, rollbacks, lost disks or retirements, and one founder.
        self.clean = draw.random() < 0.3 if clean is None else clean
        self.net = Net(self._core, (), check=draw.random() < 0.3, start_us=10_000_000)
        self.observer = Observer(self.net.clock)
        self.net.before = self.observer.effects
        self.nodes: dict[NodeId, Node] = {}
        self.lives = self.clones = self.payloads = 0
        self.counts: Counter[str] = Counter()
        self.between: Callable[[], None] = lambda: None  # called after every action
        self.skew_us = skew_us
        for name in names:
            self.start(name, name)

    def _drawn_params(self) -> dict[str, Any]:
        draw = self.draw
        params: dict[str, Any] = {"window": draw.choice([1, 2, 4, 16, 256])}
        kind = draw.randrange(10)
        if kind < 2:
            params |= {"keep": "count", "keep_count": draw.choice([1, 3, 8])}
        elif kind < 4:
            params |= {"lifetimes": True, "skew_us": draw.choice([0, 0, 50_000])}
            params["keep"] = draw.choice(["forever", "lifetime"])
        elif kind < 7:
            params |= {"stability": True, "keep": draw.choice(["forever", "stable"])}
        if draw.random() < 0.2:
            params["history"] = "new"
        if draw.random() < 0.2:
            params["held_max"] = draw.choice([1, 3])
        return params

    # Nodes

    def _core(self, key: NodeId, _names: Any, **more: Any) -> Log:
        node = self.nodes[key]
        self.lives += 1
        life = f"{self.draw.getrandbits(64):016x}"
        params = {**self.params, **more}
        if self.clean:
            params["alone_us"] = 1 if self.lives == 1 else 1 << 40
        return self.make(node.name, [], book=node.book, life=life, **params)

    def start(
        self, key: NodeId, name: NodeId, mind: Mind | None = None, book: MemoryBook | None = None
    ) -> None:
        node = Node(name, mind or Mind(), book or MemoryBook())
        if key in self.nodes:
            node.copies = self.nodes[key].copies
        self.nodes[key] = node
        self.observer.minds[key] = node.mind
        if name != key:
            self.net.called[key] = name
        if self.skew_us:
            self.net.offsets_us.setdefault(key, self.draw.randint(0, self.skew_us))
        self.net.add(key)
        self.net.do(key, lambda core, now_us: core.timer("begin", now_us))

    def crash(self, key: NodeId) -> None:
        self.nodes[key].is_up = False
        self.net.drop(key)

    @staticmethod
    def copied(book: Any) -> MemoryBook:
        fresh = MemoryBook()
        fresh.restore(deepcopy(book))
        return fresh

    def up(self) -> list[NodeId]:
        return [key for key, node in self.nodes.items() if node.is_up]

    def may_link(self, one: NodeId, other: NodeId) -> bool:
        """Two nodes of one name never meet, and nobody is linked to both."""
        name_of = self.net.name_of
        if name_of(one) == name_of(other) or self.net.is_linked(one, other):
            return False
        for me, peer in ((one, other), (other, one)):
            for third in self.up():
                if third != peer and name_of(third) == name_of(peer) and self.net.is_linked(me, third):
                    return False
        return True

    # Actions

    def run(self, actions: int = 140) -> LogWorld:
        weights = {
            "broadcast": 30, "link": 14, "cut": 5, "arrive": 60, "time": 14, "crash": 3, "restart": 6,
            "join": 2, "leave": 1, "pause": 2, "partition": 2, "backup": 3,
        }  # fmt: skip
        if not self.clean:
            weights |= {"forget": 2, "rollback": 2, "clone": 2, "retire": 2}
        kinds = list(weights)
        for kind in self.draw.choices(kinds, [weights[each] for each in kinds], k=actions):
            getattr(self, f"_{kind}")()
            self.counts[kind] += 1
            self.between()
        return self

    def run_with_crash(self, actions: int, crash_at: int) -> int:
        """Run; the node of step `crash_at` dies after it, and comes back on its store. Returns the steps."""
        steps = 0
        victim: list[NodeId] = []

        def count(node: NodeId, _effects: Effects) -> None:
            nonlocal steps
            if steps == crash_at:
                victim.append(node)
            steps += 1

        def crash() -> None:
            if victim:
                key = victim.pop()
                node = self.nodes.get(key)
                if node is not None and node.is_up:
                    self.crash(key)
                    self.start(key, node.name, node.mind, self.copied(node.book.save()))

        self.net.after, self.between = count, crash
        self.run(actions)
        self.net.after, self.between = lambda node, effects: None, lambda: None
        return steps

    def _pick(self) -> NodeId | None:
        up = self.up()
        return self.draw.choice(up) if up else None

    def _broadcast(self) -> None:
        key = self._pick()
        if key is None or not self.net.cores[key].ready:
            return
        core, observer = self.net.cores[key], self.observer
        self.payloads += 1
        payload = str(self.payloads).encode()
        lifetime_us = None
        if self.timed and self.draw.random() < 0.7:
            lifetime_us = self.draw.choice([30_000, 200_000, 1_000_000, 5_000_000])
        deadline_us = None if lifetime_us is None else self.net.clock(key) + lifetime_us
        observer.broadcast(key, MessageId(core.origin, core.last + 1), payload, deadline_us)
        self.net.broadcast(key, lifetime_us, payload)

    def _arrive(self) -> None:
        for _ in range(self.draw.randint(1, 6)):
            heads = self.net.heads()
            if not heads:
                return
            self.net.arrive(self.draw.choice(heads))

    def _time(self) -> None:
        self.net.pass_time(self.net.now_us + self.draw.choice([1_000, 20_000, 100_000, 500_000]))

    def _link(self) -> None:
        up = self.up()
        if len(up) >= 2:
            one, other = self.draw.sample(up, 2)
            if self.may_link(one, other):
                self.net.link(one, other)

    def _cut(self) -> None:
        pairs = [pair for pair, life in self.net.up.items() if life and pair[0] < pair[1]]
        if pairs:
            self.net.cut(*self.draw.choice(pairs))

    def _partition(self) -> None:
        part = {key for key in self.up() if self.draw.random() < 0.5}
        for one, other in [pair for pair, life in self.net.up.items() if life]:
            if self.net.up.get((one, other)) and (one in part) != (other in part):
                self.net.cut(one, other)

    def _crash(self) -> None:
        key = self._pick()
        if key is not None and len(self.up()) > 1:
            self.crash(key)

    def _restart(self) -> None:
        """With the store, as it was when the process died."""
        down = [key for key, node in self.nodes.items() if not node.is_up]
        if down:
            key = self.draw.choice(down)
            node = self.nodes[key]
            self.start(key, node.name, node.mind, self.copied(node.book.save()))

    def _forget(self) -> None:
        """Without the store: the disk is lost."""
        key = self._pick()
        if key is not None and len(self.up()) > 1:
            name = self.nodes[key].name
            self.crash(key)
            self.start(key, name)

    def _backup(self) -> None:
        key = self._pick()
        if key is not None:
            node = self.nodes[key]
            node.copies.append((node.book.save(), deepcopy(node.mind)))

    def _rollback(self) -> None:
        able = [key for key in self.up() if self.nodes[key].copies]
        if able:
            key = self.draw.choice(able)
            node = self.nodes[key]
            book, mind = self.draw.choice(node.copies)
            self.crash(key)
            self.start(key, node.name, deepcopy(mind), self.copied(book))

    def _clone(self) -> None:
        key = self._pick()
        if key is not None and self.clones < 2:
            self.clones += 1
            node = self.nodes[key]
            self.start(f"{key}~{self.clones}", node.name, deepcopy(node.mind), self.copied(node.book.save()))

    def _join(self) -> None:
        name = f"j{len(self.nodes)}"
        if len(self.nodes) < 8:
            self.start(name, name)

    def _leave(self) -> None:
        key = self._pick()
        if key is not None and len(self.up()) > 2:
            self.net.do(key, lambda core, now_us: core.timer(LEAVE, now_us))
            self.crash(key)

    def _retire(self) -> None:
        key, other = self._pick(), self._pick()
        if key is not None and other is not None and self.stability and self.net.cores[key].ready:
            name = self.nodes[other].name
            self.net.do(key, lambda core, now_us: core.command("retire", (name,), now_us))

    def _pause(self) -> None:
        key = self._pick()
        if key is not None:
            verb = self.draw.choice(["pause", "resume"])
            self.net.do(key, lambda core, now_us: core.command(verb, (), now_us))

    # The end

    def heal(self) -> LogWorld:
        """Everybody who is up is connected, nobody pauses, time passes until nothing changes."""
        if len({self.nodes[key].name for key in self.up()}) < 2:
            self.start("z", "z")  # clones of one name cannot meet: somebody must carry
        up = self.up()
        for key in up:
            self.net.do(key, lambda core, now_us: core.command("resume", (), now_us))
        names = sorted({self.nodes[key].name for key in up})
        for turn in range(60 if self.net.called else 1):  # of one name only one is connected at a time
            chosen = []
            for name in names:
                same = [key for key in up if self.nodes[key].name == name]
                chosen.append(self.draw.choice(same))
            for one, other in [pair for pair, life in self.net.up.items() if life and pair[0] < pair[1]]:
                if self.net.up.get((one, other)) and not {one, other} <= set(chosen):
                    self.net.cut(one, other)
            for one in chosen:
                for other in chosen:
                    if one < other and not self.net.is_linked(one, other):
                        self.net.link(one, other)
            self._quiet()
            if turn and self._agree():
                break
        self._judge_end()
        return self

    def _quiet(self) -> None:
        still = 0
        for _ in range(400):
            before = self._state()
            self.net.settle()
            self.net.pass_time(self.net.now_us + 100_000)
            still = still + 1 if not self.net.flying and self._state() == before else 0
            if still >= 25:
                return

    def _state(self) -> list[dict[str, int]]:
        return [dict(self.nodes[key].mind.accounted) for key in self.up()]

    def _agree(self) -> bool:
        states = self._state()
        return all(state == states[0] for state in states)

    def _judge_end(self) -> None:
        observer = self.observer
        if not self._agree():
            have = {key: self.nodes[key].mind.accounted for key in self.up()}
            streams = {stream for each in have.values() for stream in each}
            apart = {
                s: {k: v.get(s, 0) for k, v in have.items()}
                for s in streams
                if len({v.get(s, 0) for v in have.values()}) > 1
            }
            observer.problem("apart", str(apart))
        anywhere = {id_ for key in self.up() for id_ in self.nodes[key].mind.delivered}
        for key in self.up():
            core = self.net.cores[key]
            core.check()
            for waiting in core.explain():
                if set(waiting.missing) & anywhere:
                    observer.problem("stuck", f"{key} {waiting}")
            missed = self.nodes[key].mind.missed
            if missed and self.keeps_all:
                observer.problem("lost", f"{key} {sorted(missed)[:3]}")


def storm(seed: int, make: Callable[..., Log] = Log, actions: int = 140, **fixed: Any) -> LogWorld:
    """One world from its first action to its judgement."""
    return LogWorld(seed, make, **fixed).run(actions).heal()

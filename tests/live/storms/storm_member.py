"""One member of a storm: speaks on its own, writes down all that it says, is given and is told.

It writes one JSON list a line, before anything else follows from it, so that `kill -9` loses nothing of what
the application knew. A payload names the messages that its sender had before it: whoever judges needs nothing
of ours to know what happened before what.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import whence
from support.processes import orders
from whence.errors import WhenceError

PAUSE_S = (0.1, 0.4)  # between two messages of one member
WAIT_S = 1.0  # for room
WORK_S = 0.3  # at most, with a message, where several tasks read
READERS = 3
DEADLINES_S = (0.5, 2.0, 30.0)  # where messages have lifetimes of their own
TICK_S = 0.25  # how often a member looks for events, and says that it lives
TOLD = {
    "missed",
    "returned",
    "retired",
    "rolled back",
    "rejoined",
    "out",
    "given up",
    "failed",
    "split",
    "clock",
}


@dataclass
class Settings:
    """What one member is told."""

    node: str
    opening: int
    names: str
    options: dict[str, Any]  # of whence.join
    log: str
    limits: dict[str, Any] = field(default_factory=dict)
    is_point_to_point: bool = False
    seed: int = 0
    habit: str = ""  # "readers": several tasks read; "keys": calls are given up and tried again; "deadlines"


class Speaker:
    """What the application does."""

    def __init__(self, group: whence.Group, settings: Settings, log: int) -> None:
        self.group = group
        self.settings = settings
        self.log = log
        self.draw = random.Random(f"{settings.seed}/{settings.node}/{settings.opening}")
        self.count = 0
        self.past: list[str] = []  # what this node had since its last message, that one included
        self.ended = False
        self.last_event: whence.GroupEvent | None = None

    def write(self, *fields: object) -> None:
        os.write(self.log, json.dumps([*fields, round(time.time(), 3)]).encode() + b"\n")

    async def read(self) -> None:
        """Write down every message and outcome."""
        is_durable = "store" in self.settings.options and self.settings.options["protocol"] != "log"
        try:
            async for outcome in self.group if is_durable else self.group.outcomes():
                if isinstance(outcome, whence.Message):
                    said = json.loads(outcome.payload)
                    life = getattr(outcome, "life", "")
                    self.write("got", outcome.origin, life, outcome.number, said["name"], said["past"])
                    if outcome.origin != self.settings.node:
                        self.past.append(said["name"])
                elif type(outcome).__name__ == "Expired":
                    self.write("expired", outcome.origin, outcome.number)  # type: ignore[union-attr]
                elif type(outcome).__name__ == "Rejoined":
                    self.write("rejoined")  # another life: it has nothing of what the one before had
                    self.past = []
            self.write("ended", "")
        except WhenceError as error:
            self.write("ended", str(error))
        self.ended = True

    async def work(self) -> None:
        """One of several readers: a message counts as given when this one is done with it (W7)."""
        while True:
            try:
                message = await self.group.receive()
            except WhenceError as error:
                self.write("ended", str(error))
                return
            await asyncio.sleep(self.draw.uniform(0.0, WORK_S))
            if self.draw.random() < 0.1:
                self.group.again(message)
                continue
            name = json.loads(message.payload)["name"]
            self.write("got", message.origin, getattr(message, "life", ""), message.number, name, [])
            self.group.done(message)

    async def say(self, word: str = "") -> None:
        """Send one message, to all or to a member that is drawn."""
        self.count += 1
        settings = self.settings
        name = f"{settings.node}.{settings.opening}.{self.count}{word}"
        others = [each for each in settings.names if each != settings.node]
        if not settings.is_point_to_point:
            await self._give(name, None)
            return
        for to in others if word else [self.draw.choice(others)]:
            await self._give(f"{name}>{to}", to)

    async def _give(self, name: str, to: str | None) -> None:
        taken = list(self.past)
        self.write("says", name, taken, to)
        if await self._hand_over(name, taken, to):
            self.past = [name, *self.past[len(taken) :]] if self.past[: len(taken)] == taken else [name]

    async def _hand_over(self, name: str, taken: list[str], to: str | None) -> bool:
        payload = json.dumps({"name": name, "past": taken}).encode()
        options: dict[str, Any] = {"timeout": WAIT_S}
        if self.settings.habit == "keys":
            options["key"] = name.encode()
            await self._give_up(payload, to, options)
        elif self.settings.habit == "deadlines":
            options["deadline"] = self.draw.choice(DEADLINES_S)
        try:
            id_ = await self._call(payload, to, options)
        except WhenceError as error:
            self.write("refused", name, type(error).__name__, str(error))
            return False
        self.write("sent", id_.origin, getattr(id_, "life", ""), id_.number, name, to)
        return True

    async def _call(self, payload: bytes, to: str | None, options: dict[str, Any]) -> whence.MessageId:
        if to is None:
            return await self.group.broadcast(payload, **options)
        return await self.group.send(to, payload, **options)

    async def _give_up(self, payload: bytes, to: str | None, options: dict[str, Any]) -> None:
        """Call, and do not wait for the answer: what follows is the same message (W8)."""
        for _ in range(self.draw.randrange(3)):
            call = asyncio.create_task(self._call(payload, to, options))
            await asyncio.sleep(self.draw.choice([0.0, 0.001, 0.01]))
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)

    async def say_again(self, said: list[tuple[str, list[str], str | None]]) -> None:
        """What an earlier process on this store said, and had no answer for."""
        for name, taken, to in said:
            await self._hand_over(name, taken, to)

    async def speak(self) -> None:
        """Say something again and again."""
        while True:
            await asyncio.sleep(self.draw.uniform(*PAUSE_S))
            await self.say()

    async def look(self) -> None:
        """Write down what the node tells of itself."""
        while True:
            await asyncio.sleep(TICK_S)
            self.note_events()
            self.write("lives")

    def note_events(self) -> None:
        new = []
        for event in reversed(self.group.events()):
            if event is self.last_event:
                break
            new.append(event)
        if new:
            self.last_event = new[0]
        for event in reversed(new):
            if event.kind in TOLD:
                self.write("told", event.kind, event.peer, event.detail)


def unanswered(settings: Settings) -> list[tuple[str, list[str], str | None]]:
    """The messages of earlier processes that were neither sent nor refused, as far as these knew."""
    said: dict[str, tuple[str, list[str], str | None]] = {}
    for text in Path(settings.log).read_text().splitlines():
        try:
            kind, *fields = json.loads(text)
        except ValueError:
            continue  # cut in the middle of a word
        if kind == "says":
            said[fields[0]] = (fields[0], fields[1], fields[2])
        elif kind == "sent":
            said.pop(fields[3], None)
        elif kind == "refused":
            said.pop(fields[0], None)
    return list(said.values())


def open_log(settings: Settings) -> int:
    return os.open(settings.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


async def run(settings: Settings, log: int, told: AsyncIterator[str]) -> None:
    limits = whence.Limits(**settings.limits)
    options = dict(settings.options)
    if "faults" in options:
        options["faults"] = whence.LinkFaults(**options["faults"])
    async with whence.join("storm", node=settings.node, limits=limits, **options) as group:
        speaker = Speaker(group, settings, log)
        speaker.write("open", settings.opening)
        reading = (
            [speaker.work() for _ in range(READERS)] if settings.habit == "readers" else [speaker.read()]
        )
        tasks = [asyncio.create_task(work) for work in (*reading, speaker.look())]
        if settings.habit == "keys":
            tasks.append(asyncio.create_task(speaker.say_again(unanswered(settings))))
        speaking = asyncio.create_task(speaker.speak())
        rounds = []
        async for line in told:
            verb, *given = line.split()
            if verb == "calm":
                speaking.cancel()
            elif verb == "round":
                rounds.append(asyncio.create_task(speaker.say(f"#{given[0]}")))
            elif verb == "retire":
                try:
                    await group.retire(given[0])
                    speaker.write("retires", given[0])
                except WhenceError as error:
                    speaker.write("refused", f"retire {given[0]}", type(error).__name__, str(error))
        speaker.note_events()
        speaker.write("leaves", [str(each) for each in group.explain()[:5]])
        for task in (*tasks, speaking, *rounds):
            task.cancel()
        ended = await asyncio.gather(*tasks, speaking, *rounds, return_exceptions=True)
        for problem in ended:
            if isinstance(problem, Exception):
                raise problem  # the judge would miss what it should have written


def take_part(given: dict[str, Any]) -> None:
    """Take part, in a process of its own, with orders on standard input."""
    settings = Settings(**given)

    async def main() -> None:
        await run(settings, open_log(settings), orders())

    asyncio.run(main())

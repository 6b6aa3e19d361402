"""A small client-server system on asyncio and real sockets, whose log is exported in every format.

Clients put and get registers at a leader over TCP, one connection per attempt, and try again with the same id
when the reply is late. The leader handles requests concurrently, numbers what changes a register and sends it
over one connection to each replica, which applies it in order. Every task is a context; every process has a
clock that is wrong by up to seconds. `Plan.reorder` makes a replica apply two entries the wrong way round,
`Plan.stale` makes the leader return a value that the client knows to be overwritten.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

CLIENTS, REPLICAS, OPERATIONS = ("c1", "c2"), ("r1", "r2"), 6


class Plan(NamedTuple):
    seed: int
    reorder: bool = False
    stale: bool = False


class Happened(NamedTuple):
    """One event as its context saw it."""

    proc: str
    ctx: str
    kind: str
    message: str
    session: str
    number: int | None  # of an entry in the leader's log
    start_ns: int
    clock: dict[str, int]


class Shop:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rng = random.Random(plan.seed)
        self.offset_ns = {name: self.rng.randint(-3, 3) * 10**9 for name in ("leader", *CLIENTS, *REPLICAS)}
        self.events: list[Happened] = []
        self.history: list[dict[str, Any]] = []
        self.spans: list[dict[str, Any]] = []
        self._clocks: dict[str, dict[str, int]] = {}
        self._registers: dict[str, str] = {}
        self._older: dict[str, str] = {}
        self._done: dict[str, asyncio.Future[str | None]] = {}
        self._entries = 0
        self._writers: list[asyncio.StreamWriter] = []
        self._handlers = 0
        self._news: dict[str, asyncio.Queue[int]] = {name: asyncio.Queue() for name in REPLICAS}

    def now_ns(self, proc: str) -> int:
        return time.time_ns() + self.offset_ns[proc]

    def happens(
        self, proc: str, ctx: str, kind: str, message: str, session: str = "", number: int | None = None,
        carried: dict[str, int] | None = None,
    ) -> dict[str, int]:  # fmt: skip
        clock = self._clocks.setdefault(ctx, {})
        for other, count in (carried or {}).items():
            clock[other] = max(clock.get(other, 0), count)
        clock[ctx] = clock.get(ctx, 0) + 1
        self.events.append(
            Happened(proc, ctx, kind, message, session, number, self.now_ns(proc), dict(clock))
        )
        return dict(clock)

    def span(self, proc: str, id_: str, kind: int, start_ns: int, parent: str = "", **more: Any) -> None:
        made = {
            "traceId": f"{self.plan.seed:032x}", "spanId": id_, "name": id_, "kind": kind,
            "startTimeUnixNano": str(start_ns), "endTimeUnixNano": str(self.now_ns(proc)), **more,
        }  # fmt: skip
        self.spans.append({"proc": proc, **made, **({"parentSpanId": parent} if parent else {})})

    # The parts

    async def run(self) -> None:
        servers = [await asyncio.start_server(self._replica(name), "127.0.0.1", 0) for name in REPLICAS]
        for server in servers:
            port = server.sockets[0].getsockname()[1]
            self._writers.append((await asyncio.open_connection("127.0.0.1", port))[1])
        leader = await asyncio.start_server(self._handle, "127.0.0.1", 0)
        port = leader.sockets[0].getsockname()[1]
        await asyncio.gather(*(self._client(name, port) for name in CLIENTS))
        await asyncio.gather(*(self._all_applied(name) for name in REPLICAS))
        for writer in self._writers:
            writer.close()
        for name in REPLICAS:
            await self._news[name].get()  # it has seen the end
        for server in (leader, *servers):
            server.close()

    async def _all_applied(self, name: str) -> None:
        for _ in range(self._entries):
            await self._news[name].get()

    async def _client(self, name: str, port: int) -> None:
        rng = random.Random(f"{self.plan.seed} {name}")  # not shared: when others draw depends on the machine
        written = ""
        for number in range(OPERATIONS):
            last = number == OPERATIONS - 1  # a read of a register that was written, so that reads are judged
            put = number < 2 or (not last and rng.random() < 0.7)
            key = written if last else f"k{rng.randint(0, 1)}"
            written = key if put else written
            value = f"{name}.{number}" if put else None
            request, found = f"{name}-{number}", None
            for attempt in range(20):
                found = await self._call(name, port, request, attempt, key, value)
                if found is not None:
                    break
            assert found is not None
            told = value if put else found["value"]
            self.history.append({"process": name, "type": "ok", "f": "write" if put else "read", "key": key,
                                 "value": told})  # fmt: skip

    async def _call(
        self, name: str, port: int, request: str, attempt: int, key: str, value: str | None
    ) -> Any:
        id_ = f"{zlib.crc32(f'{request} {attempt}'.encode()):016x}"
        start_ns = self.now_ns(name)
        clock = self.happens(name, name, "send", request)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        asked = {"request": request, "key": key, "value": value, "clock": clock, "span": id_}
        writer.write(json.dumps(asked).encode() + b"\n")
        try:
            line = await asyncio.wait_for(reader.readline(), 0.004 if attempt == 0 else 1)
        except TimeoutError:
            self.span(name, id_, 3, start_ns, status={"code": 2})
            return None
        finally:
            writer.close()
        reply = json.loads(line)
        self.happens(name, name, "deliver", reply["reply"], name, carried=reply["clock"])
        self.span(name, id_, 3, start_ns)
        return reply

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = json.loads(await reader.readline())
        self._handlers += 1
        ctx, request, start_ns = f"leader/h{self._handlers}", asked["request"], self.now_ns("leader")
        id_ = f"{self._handlers:016x}"
        self.happens("leader", ctx, "deliver", request, carried=asked["clock"])
        await asyncio.sleep(self.rng.choice([0, 0.001, 0.006]))
        if request not in self._done:
            self._done[request] = asyncio.get_running_loop().create_future()
            self._done[request].set_result(self._perform(asked, id_, self._clocks[ctx]))
        found = await self._done[request]
        reply = f"reply-{request}-{self._handlers}-{id_[-4:]}"
        clock = self.happens("leader", ctx, "send", reply, carried=self._clocks.get("leader/log"))
        self.span("leader", id_, 2, start_ns, asked["span"])
        writer.write(json.dumps({"reply": reply, "value": found, "clock": clock}).encode() + b"\n")
        writer.close()

    def _perform(self, asked: dict[str, Any], parent: str, clock: dict[str, int]) -> str | None:
        """Change or read a register. One task at a time is here: it is the context leader/log."""
        key, value = asked["key"], asked["value"]
        if value is None:
            return self._older.get(key) if self.plan.stale else self._registers.get(key)
        if key in self._registers:
            self._older[key] = self._registers[key]
        self._registers[key] = value
        self._entries += 1
        number, start_ns = self._entries, self.now_ns("leader")
        carried = self.happens("leader", "leader/log", "send", f"log@{number}", number=number, carried=clock)
        id_ = f"{0xE000 + number:016x}"
        self.span("leader", id_, 4, start_ns, parent, attributes=_messaging(number))
        line = json.dumps({"number": number, "clock": carried, "span": id_}).encode() + b"\n"
        for writer in self._writers:
            writer.write(line)
        return value

    def _replica(self, name: str) -> Callable[..., Any]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            held: list[dict[str, Any]] = []
            broken = self.plan.reorder and name == "r2"
            while line := await reader.readline():
                entry = json.loads(line)
                self.happens(name, name, "receive", f"log@{entry['number']}", carried=entry["clock"])
                if broken and not held and entry["number"] == 2:
                    held.append(entry)  # its successor overtakes it
                    continue
                for each in [entry, *held]:
                    await self._apply(name, each)
                    broken = broken and not held
                held.clear()
            writer.close()
            self._news[name].put_nowait(0)

        return serve

    async def _apply(self, name: str, entry: dict[str, Any]) -> None:
        number, start_ns = entry["number"], self.now_ns(name)
        self.happens(name, name, "deliver", f"log@{number}", name, number=number, carried=entry["clock"])
        await asyncio.sleep(0)
        time.sleep(1e-6)  # noqa: ASYNC251 - two spans must not share a nanosecond
        link = {"traceId": f"{self.plan.seed:032x}", "spanId": entry["span"]}
        group = {"key": "messaging.consumer.group.name", "value": {"stringValue": name}}
        process = {"key": "messaging.operation.type", "value": {"stringValue": "process"}}
        attributes = [*_messaging(number), group, process]
        id_ = f"{0xA000 + 256 * REPLICAS.index(name) + number:016x}"
        self.span(name, id_, 5, start_ns, links=[link], attributes=attributes)
        self._news[name].put_nowait(number)


def _messaging(number: int) -> list[dict[str, Any]]:
    texts = {"messaging.destination.name": "log", "messaging.destination.partition.id": "0"}
    made: list[dict[str, Any]] = [{"key": key, "value": {"stringValue": text}} for key, text in texts.items()]
    return [*made, {"key": "messaging.kafka.offset", "value": {"intValue": str(number)}}]


def run_shop(plan: Plan) -> Shop:
    shop = Shop(plan)
    asyncio.run(shop.run())
    return shop


# Formats

_EVENT = {
    "process": "proc", "context": "ctx", "kind": {"column": "kind"}, "message": "message",
    "session": "session", "time": "time",
}  # fmt: skip
_TEXT = {"pattern": r"^(?P<time>\d+) \[(?P<host>\S+) (?P<ctx>\S+)\]"}
_LINES = [
    {"pattern": rf"{verb} (?P<msg>\S+)(?: in (?P<session>\S+))?$", "kind": kind}
    for verb, kind in (("sending", "send"), ("got", "receive"), ("handled", "deliver"))
]
_VERBS = {"send": "sending", "receive": "got", "deliver": "handled"}


def table(shop: Shop) -> list[dict[str, Any]]:
    return [
        {"proc": each.proc, "ctx": each.ctx, "kind": each.kind, "message": each.message,
         "session": each.session, "time": each.start_ns}
        for each in shop.events
    ]  # fmt: skip


def to_csv(shop: Shop, folder: Path) -> tuple[Path, dict[str, Any]]:
    rows = table(shop)
    path = folder / "shop.csv"
    lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path, {"log": {"format": "csv", "time_unit": "ns"}, "event": _EVENT}


def to_jsonl(shop: Shop, folder: Path) -> tuple[Path, dict[str, Any]]:
    path = folder / "shop.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in table(shop)))
    return path, {"log": {"format": "jsonl", "time_unit": "ns"}, "event": _EVENT}


def to_parquet(shop: Shop, folder: Path) -> tuple[Path, dict[str, Any]]:
    path = folder / "shop.parquet"
    pq.write_table(pa.Table.from_pylist(table(shop)), path)
    return path, {"log": {"format": "parquet", "time_unit": "ns"}, "event": _EVENT}


def to_lines(shop: Shop, folder: Path) -> tuple[Path, dict[str, Any]]:
    path = folder / "shop.txt"
    with path.open("w") as file:
        for each in shop.events:
            tail = f" in {each.session}" if each.session else ""
            file.write(f"{each.start_ns} [{each.proc} {each.ctx}] {_VERBS[each.kind]} {each.message}{tail}\n")
            file.write("a remark that no pattern knows\n")
    event = {"context": "ctx", "session": "session"}
    return path, {"log": {"format": "lines", "time_unit": "ns", **_TEXT}, "lines": _LINES, "event": event}


def to_shiviz(shop: Shop, folder: Path) -> tuple[Path, dict[str, Any]]:
    path = folder / "shop.log"
    with path.open("w") as file:
        for each in shop.events:
            tail = f" in {each.session}" if each.session else ""
            file.write(f"{_VERBS[each.kind]} {each.message}{tail}\n{each.ctx} {json.dumps(each.clock)}\n")
    return path, {"log": {"format": "shiviz"}, "lines": _LINES, "event": {"session": "session"}}


def otlp_requests(shop: Shop) -> list[dict[str, Any]]:
    made = []
    for span in shop.spans:
        names = {"service.name": span["proc"].rstrip("0123456789"), "service.instance.id": span["proc"]}
        resource = [{"key": key, "value": {"stringValue": text}} for key, text in names.items()]
        inner = {key: value for key, value in span.items() if key != "proc"}
        made.append({"resource": {"attributes": resource}, "scopeSpans": [{"spans": [inner]}]})
    return [{"resourceSpans": made}]


def to_otlp(shop: Shop, folder: Path) -> tuple[Path, dict[str, Any]]:
    path = folder / "shop.json"
    path.write_text("".join(json.dumps(each) + "\n" for each in otlp_requests(shop)))
    return path, {"log": {"format": "otlp"}}


def to_kafka(shop: Shop, folder: Path) -> tuple[Path, dict[str, Any]]:
    path = folder / "kafka.jsonl"
    rows = [
        {"topic": "log", "partition": 0, "offset": each.number, "group": each.proc, "consumer": each.proc,
         "assignment": 1}
        for each in shop.events if each.kind == "deliver" and each.number is not None
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path, {"log": {"preset": "kafka", "format": "jsonl"}}


def to_mcap(shop: Shop, folder: Path) -> tuple[Path, dict[str, Any]]:
    from mcap.writer import Writer

    path = folder / "r2.mcap"
    with path.open("wb") as stream:
        writer = Writer(stream)
        writer.start()
        channel = writer.register_channel("/log", "json", 0, {"callerid": "/leader"})
        for each in shop.events:
            if each.kind == "deliver" and each.proc == "r2":
                writer.add_message(channel, each.start_ns, b"{}", each.start_ns, each.number or 0)
        writer.finish()
    return path, {"log": {"preset": "rosbag"}}


def to_history(shop: Shop, folder: Path) -> tuple[Path, dict[str, Any]]:
    path = folder / "history.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in shop.history))
    return path, {"log": {"format": "history"}}


EXPORTS = {
    "csv": to_csv, "jsonl": to_jsonl, "parquet": to_parquet, "lines": to_lines, "shiviz": to_shiviz,
    "otlp": to_otlp, "kafka": to_kafka, "mcap": to_mcap, "history": to_history,
}  # fmt: skip

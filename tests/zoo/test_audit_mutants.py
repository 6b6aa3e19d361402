"""Mutants of the judge of foreign logs and of its readers: each gives another verdict somewhere, and is caught.

A mutant is the whole package `whence.foreign` with one change of its text, under another name. It is held to
the corpus, to random logs, and to a few spans and tables. Only the module that is changed is compiled again.
"""
# ruff: noqa: E501 - mutants are lines of text

from __future__ import annotations

import compileall
import json
import random
import shutil
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from support.audits import random_log
from support.corpus import CORPUS
from whence import foreign

SOURCE = Path(foreign.__file__).parent
NAME = "mutated_foreign"
SEEDS = 150


class AuditMutant(NamedTuple):
    name: str
    module: str
    old: str
    new: str


MUTANTS = [
    AuditMutant("late-or-equal", "kernels", "row[place] < start[each]", "row[place] <= start[each]"),
    AuditMutant("own-delivery-first", "kernels", "if row[place] < start[each]:", "if end[each] < start[each]:"),
    AuditMutant("latest-end", "kernels", "row[place] = min(row[place], end[each])", "row[place] = end[each]"),
    AuditMutant("no-successors", "kernels", "            lower(row, table[to[edge]])", "            pass"),
    AuditMutant("ranks-equal-are-later", "kernels", "sent[middle] > sent_end[each]", "sent[middle] >= sent_end[each]"),
    AuditMutant("overtaken-or-equal", "kernels", "least[left] < start[each]", "least[left] <= start[each]"),
    AuditMutant("last-send-counts", "graph", "by_message = np.lexsort((sends, when, log.msg[sends]))",
                "by_message = np.lexsort((sends, -when, log.msg[sends]))"),
    AuditMutant("hedged-sends-count", "graph", "    event[ambiguous] = -1\n", ""),
    AuditMutant("deliveries-do-not-learn", "graph", "    edges.add(message_node[log.msg[taken]], taken, MESSAGE)\n", ""),
    AuditMutant("deps-ignored", "graph", "    edges.add(message_node[log.deps.values], mine, DEPENDENCY)\n", ""),
    AuditMutant("links-ignored", "graph", "    _add_links(log, edges)\n", ""),
    AuditMutant("ranks-ignored", "graph",
                "    edges.chain(sends.channel[ranked], sends.rank[ranked], message_node[ranked], RANK)\n", ""),
    AuditMutant("clocks-ignored", "graph", "    edges.add(clocks.causes, clocks.effects, CLOCK)\n", ""),
    AuditMutant("circles-stay", "judge", "            free[circling] = False\n", ""),
    AuditMutant("second-delivery-counts", "judge",
                "(np.diff(message) != 0) | (np.diff(column) != 0)", "np.diff(column) >= 0"),
    AuditMutant("scopes-not-split", "judge",
                "owner = np.where(placed, log.ctx[event], -1 - log.proc[event])", "owner = np.zeros(len(event), int)"),
    AuditMutant("no-new-life", "model", "        if before.any():\n", "        if False:\n"),
    AuditMutant("line-order-of-hosts", "mapping", "return None if clock is None else clock.get(ctx)", "return line"),
    AuditMutant("faulty-clocks-count", "clocks", "            faults[event] = fault\n            continue\n",
                "            faults[event] = fault\n"),
    AuditMutant("clock-may-forget", "clocks", "        if mine.get(host, 0) < count:\n            knew",
                "        if False:\n            knew"),
    AuditMutant("created-per-delivery", "judge", "axis=1, return_index=True)[1]]", "axis=1, return_index=True)[1] * 0]"),
    AuditMutant("contract-not-required", "report", "        required.add(contract.order)\n", ""),
    AuditMutant("unknown-is-ok", "report", 'return ("unknown" if', 'return ("ok" if'),
    AuditMutant("seen-is-broken", "report", "BROKEN if name in demanded | required else SEEN", "BROKEN"),
    AuditMutant("spans-of-a-service", "otlp", "instance = resource.get(\"service.instance.id\")", "instance = \"x\""),
    AuditMutant("receive-delivers", "otlp", "arrives = is_arrival(span) and processed", "arrives = False"),
    AuditMutant("sampled-is-silent", "otlp", "    if absent:\n", "    if False:\n"),
    AuditMutant("lists-collide", "mapping", '(part or "").replace("|", "||")', '(part or "")'),
    AuditMutant("default-session-is-the-process", "mapping",
                'if "session" in self.mapping.event else ctx', 'if "session" in self.mapping.event else proc'),
    AuditMutant("info-did-not-happen", "tables", "            if place in unsure:\n", "            if False:\n"),
    AuditMutant("crashed-for-good", "judge", " & (log.pos == last[log.ctx])", ""),
    AuditMutant("every-log-is-ours", "shiviz", "    return all(map(_EXPORTED.match, texts)) and any",
                "    return True or any"),
    AuditMutant("nanoseconds-are-cut", "mapping", 'int(finer[1].ljust(3, "0")) if finer else 0', "0"),
    AuditMutant("bytes-by-their-looks", "mapping", "_text_of_bytes(value) if isinstance(value, bytes) else str(value)",
                "str(value)"),
    AuditMutant("numbers-of-64-bits", "model", "    made = Decimal(found[1])\n", "    made = Decimal(float(found[1]))\n"),
    AuditMutant("stale-reads-pass", "judge", "and newer != writer and", "and newer == writer and"),
]  # fmt: skip


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package under another name, compiled."""
    folder = tmp_path_factory.mktemp("unchanged") / NAME
    shutil.copytree(SOURCE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for path in folder.glob("*.py"):
        path.write_text(path.read_text().replace("whence.foreign", NAME))
    compileall.compile_dir(folder, quiet=1)
    return folder


@pytest.fixture
def folder(tmp_path: Path, unchanged: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the package under another name, which is imported from there until the test ends."""
    shutil.copytree(unchanged, tmp_path / NAME)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == NAME]:
        del sys.modules[name]


def change(folder: Path, mutant: AuditMutant) -> None:
    """Change one module of the package in a folder."""
    path = folder / NAME / f"{mutant.module}.py"
    text, old, new = (each.replace("whence.foreign", NAME) for each in (path.read_text(), *mutant[2:]))
    assert text.count(old) == 1, f"{mutant.name}: the text occurs {text.count(old)} times"
    path.write_text(text.replace(old, new))
    Path(cache_from_source(str(path))).unlink()  # else it might be taken for that of the changed text


def documents(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Logs that the corpus has nothing like."""
    table = folder / "threads.jsonl"
    rows = [
        {"p": "s", "c": "s", "k": "send", "m": "x"}, {"p": "s", "c": "s", "k": "send", "m": "y"},
        {"p": "r", "c": "1", "k": "deliver", "m": "y", "g": "|"}, {"p": "r", "c": "2", "k": "deliver", "m": "x"},
    ]  # fmt: skip
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    event = {"process": "p", "context": "c", "kind": "k", "message": "m"}
    yield table, {"log": {"format": "jsonl"}, "event": event}
    yield table, {"log": {"format": "jsonl"}, "event": {**event, "session": ["p", "g"]}}
    yield table, {"log": {"format": "jsonl"}, "event": {"process": "p"}, "contract": {"order": "causal"}}
    ties = folder / "ties.jsonl"
    rows = [
        {"p": "s", "k": "send", "m": "x", "o": 1}, {"p": "s", "k": "send", "m": "y", "o": 2},
        {"p": "r", "k": "deliver", "m": "y", "o": 5}, {"p": "r", "k": "deliver", "m": "x", "o": 5},
        {"p": "q", "k": "deliver", "m": "w", "o": 2, "n": 3}, {"p": "q", "k": "deliver", "m": "v", "o": 1, "n": 3},
        {"p": "q", "k": "deliver", "m": "z", "o": 3, "n": 4},
    ]  # fmt: skip
    ties.write_text("".join(json.dumps(row) + "\n" for row in rows))
    ordered = {"process": "p", "kind": "k", "message": "m", "order": "o"}
    yield ties, {"log": {"format": "jsonl"}, "event": ordered}
    yield ties, {"log": {"format": "jsonl"}, "event": {**ordered, "channel": "p", "send_order": "n"}}
    bars = folder / "bars.jsonl"
    rows = [{"m": "1", "x": "a | ", "y": "b"}, {"m": "1", "x": "a", "y": " | b"}]
    bars.write_text("".join(json.dumps(row) + "\n" for row in rows))
    yield bars, {"log": {"format": "jsonl"}, "event": {"message": "m", "session": ["x", "y"], "group": ["x", "y"]},
                 "contract": {"require": ["fifo"]}}  # fmt: skip
    past = folder / "history.jsonl"
    rows = [
        {"process": "a", "f": "write", "key": "x", "value": 1}, {"process": "a", "f": "write", "key": "x", "value": 2},
        {"process": "b", "f": "read", "key": "x", "value": 2}, {"process": "b", "f": "read", "key": "x", "value": 1},
        {"process": "c", "f": "write", "key": "x", "value": 9, "type": "info"},
        {"process": "b", "f": "read", "key": "x", "value": 9},
    ]  # fmt: skip
    past.write_text("".join(json.dumps(row) + "\n" for row in rows))
    yield past, {"log": {"format": "history"}}
    spans = folder / "spans.json"
    spans.write_text(json.dumps(_batch()))
    yield spans, {"log": {"format": "otlp"}}


def _batch() -> dict[str, Any]:
    """Two producers, a batch that receives both messages, and one that processes the second, twice late."""

    def span(id_: int, kind: int, start: int, operation: str, message: str, *links: int) -> dict[str, Any]:
        texts = {"messaging.operation.type": operation, "messaging.destination.name": "t", "messaging.message.id": message,
                 "messaging.servicebus.message.session_id": "s"}  # fmt: skip
        return {
            "traceId": "1" * 32, "spanId": f"{id_:016x}", "kind": kind, "startTimeUnixNano": str(10**9 + start),
            "endTimeUnixNano": str(10**9 + start + 1),
            "links": [{"traceId": "1" * 32, "spanId": f"{each:016x}"} for each in links],
            "attributes": [{"key": key, "value": {"stringValue": text}} for key, text in texts.items() if text],
        }  # fmt: skip

    def of(instance: str, *spans: dict[str, Any]) -> dict[str, Any]:
        names = {"service.name": "x", "service.instance.id": instance}
        resource = {
            "attributes": [{"key": key, "value": {"stringValue": text}} for key, text in names.items()]
        }
        return {"resource": resource, "scopeSpans": [{"spans": list(spans)}]}

    return {"resourceSpans": [
        of("p", span(1, 4, 1, "send", "a"), span(2, 4, 3, "send", "b")),
        of("c", span(3, 5, 5, "receive", "", 1, 2), span(4, 5, 7, "process", "b"), span(5, 5, 9, "process", "a")),
        of("d", span(6, 5, 11, "process", "b")), of("e", span(7, 5, 13, "process", "a")),
    ]}  # fmt: skip


def verdicts(package: str, folder: Path) -> Iterator[Any]:
    """What a package says of each log of the battery; an error is a verdict, too."""
    judge = import_module(f"{package}.judge").judge
    read = import_module(f"{package}.read").read_log
    mapping = import_module(f"{package}.mapping")
    model = import_module(f"{package}.model")
    contract = model.Contract(complete=("sends", "deliveries"), members=("a", "b", "g"))

    def said(make: Any) -> Any:
        try:
            audit = msgspec.to_builtins(judge(make(), findings_max=3))
        except Exception as error:  # noqa: BLE001 - whatever a mutant does
            return type(error).__name__
        return {key: audit[key] for key in ("verdict", "exit", "properties", "notes")}

    for case in sorted(CORPUS.glob("*/case.toml")):
        loaded = mapping.load_mapping(case)
        data = next(path for path in sorted(case.parent.iterdir()) if path.suffix not in (".toml", ".py"))
        yield said(lambda: read(data, loaded))  # noqa: B023 - called at once
    for path, document in documents(folder):
        yield said(lambda: read(path, mapping.mapping_of(document)))  # noqa: B023
    for seed in range(SEEDS):
        rows, order = random_log(random.Random(seed))

        def made() -> Any:
            builder = model.LogBuilder(order, contract=contract)  # noqa: B023
            for row in rows:  # noqa: B023
                builder.add(**row)
            return builder.log()

        yield said(made)


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return list(verdicts("whence.foreign", tmp_path_factory.mktemp("right")))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_is_caught(mutant: AuditMutant, right: list[Any], folder: Path) -> None:
    change(folder, mutant)
    assert any(said != should for said, should in zip(verdicts(NAME, folder), right, strict=True))


def test_the_package_itself_is_not_caught(right: list[Any], folder: Path) -> None:
    assert list(verdicts(NAME, folder)) == right

"""The cases of tests/corpus: logs with the verdicts expected."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from whence.foreign.mapping import LogMapping, mapping_of
from whence.foreign.report import BROKEN, SEEN, Audit

CORPUS = Path(__file__).parents[1] / "corpus"


class CorpusCase(NamedTuple):
    name: str
    log: Path
    mapping: LogMapping
    expect: dict[str, Any]


def cases() -> list[CorpusCase]:
    made = []
    for folder in sorted(each for each in CORPUS.iterdir() if each.is_dir()):
        document = tomllib.loads((folder / "case.toml").read_text())
        mapping = mapping_of(document, folder.name)
        made.append(CorpusCase(folder.name, folder / document["data"], mapping, document["expect"]))
    return made


def differences(audit: Audit, expect: dict[str, Any]) -> list[str]:
    """What came out otherwise than expected."""
    codes = {note.code for note in audit.notes}
    found = {
        "verdict": (audit.verdict, expect["verdict"]),
        "exit": (audit.exit, expect["exit"]),
        "findings": (audit.counts(BROKEN), expect["findings"]),
        "seen": (audit.counts(SEEN), expect["seen"]),
        "not judged": (sorted(set(expect["not_judged"]) - set(audit.not_judged)), []),
        "notes": (sorted(set(expect["notes"]) - codes), []),
    }
    return [f"{what}: {is_} instead of {should}" for what, (is_, should) in found.items() if is_ != should]

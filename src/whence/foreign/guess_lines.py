"""Drafts a mapping for a text: where lines name a host, a time, a message, and which words tell a kind."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from whence.errors import ImportFormatError
from whence.foreign.shiviz import read_text

_LINES_MAX = 1_000
_MOST = 0.8  # of the lines that a pattern must fit

# Who wrote a line, the surest first.
_HOSTS = (
    r"\b(?:host|node|process|pod|instance|client|consumer|service)=\"?(?P<host>[^\s\",]+)",
    r"^\[pod/(?P<host>[^/]+)/",
    r"^(?P<host>[\w.-]+)\s+\| ",
    r"^[A-Z][a-z]{2} +\d+ [\d:]{8} (?P<host>\S+) ",
    r"\[(?P<host>[A-Za-z][\w.-]*)\](?!.*\[[A-Za-z][\w.-]*\])",
    r"^(?:\S+[ T]\S+ )?(?P<host>[A-Za-z][\w.-]*): ",
)
_TIMES = (
    r"\b(?:ts|time|timestamp)=\"?(?P<time>\d[^\s\",]+)",
    r"(?P<time>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)",
)
_VERBS = {
    "send": r"\b(?:sen[dt]|sending|publish\w*|broadcast\w*|produc(?:e|ed|ing)|queued|emit\w*)\b",
    "deliver": r"\b(?:deliver\w*|consum(?:e|ed|ing)|handl(?:e|ed|ing)|receiv(?:e|ed|ing)|appl(?:y|ied)|got|"
    r"stored|process(?:ed|ing))\b",
}
# What names a message: a key, or the first word with a digit after the verb.
_IDS = (
    r".*?\b(?:\w*[Ii][Dd]|msg|message|seq)[=:]\s*\"?(?P<msg>[^\s\",;]+)",
    r".*?\b(?P<msg>[A-Za-z]+[=:#]\d+)\b",
    r".*?\b(?P<msg>[\w:-]*\d[\w:-]*)",
)
_FIX = "Write a mapping with [[lines]], each with a pattern that has (?P<msg>...), and a kind"


def draft_lines(path: Path) -> dict[str, Any]:
    """The tables of a mapping for a text."""
    lines = [line for line in read_text(path).split("\n") if line.strip()][:_LINES_MAX]
    rules = [
        {"pattern": f"(?i){verb}{ids}", "kind": kind}
        for kind, verb in _VERBS.items()
        for ids in [_fitting(_IDS, [line for line in lines if re.search(f"(?i){verb}", line)], f"(?i){verb}")]
        if ids is not None
    ]
    if not rules:
        raise ImportFormatError(str(path), "none of its lines says that a message is sent or delivered", _FIX)
    of_events = [line for line in lines if any(re.search(rule["pattern"], line) for rule in rules)]
    log: dict[str, Any] = {"format": "lines"}
    parts = [each for each in (_fitting(_TIMES, of_events), _fitting(_HOSTS, of_events)) if each is not None]
    if parts:  # each is sought from the beginning of the line, whichever comes first
        log["pattern"] = "^" + "".join(map(_ahead, parts))
    return {"log": log, "lines": rules}


def _ahead(pattern: str) -> str:
    return f"(?={pattern[1:]})" if pattern.startswith("^") else f"(?=.*?{pattern})"


def _fitting(patterns: Sequence[str], lines: list[str], before: str = "") -> str | None:
    """The first of some patterns that fits most of some lines."""
    for pattern in patterns if lines else ():
        if sum(re.search(before + pattern, line) is not None for line in lines) >= _MOST * len(lines):
            return pattern
    return None

"""A study's result for machines: one JSON document, and the runs as CSV."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import msgspec

from whence.errors import writing
from whence.studies.base import StudyResult

RESULTS_FILE = "results.json"
RUNS_FILE = "runs.csv"
LINKS = {RESULTS_FILE: "everything on this page, with every run's parameters", RUNS_FILE: "one line per run"}


def as_document(result: StudyResult) -> dict[str, Any]:
    """The whole result as plain data."""
    return {
        "study": result.name,
        "title": result.title,
        "paper": result.paper,
        "scale": result.scale,
        "holds": result.holds,
        "claims": result.tally.text(),
        "command": result.command,
        "environment": dict(result.environment),
        "seconds": dict(result.seconds),
        "findings": list(result.findings),
        "expectations": [
            {
                "id": one.claim.id,
                "name": one.claim.text,
                "evidence": one.claim.evidence.value,
                "reading": one.claim.reading.value if one.claim.is_printed else None,
                "relation": one.claim.relation.value,
                "expected": one.expected,
                "measured": one.measured,
                "runs": one.runs,
                "interval": None if one.interval is None else one.interval.half,
                "difference": one.difference,
                "tolerance": None if one.claim.is_printed else msgspec.to_builtins(one.tolerance),
                "unit": one.claim.unit,
                "source": one.claim.source,
                "demanded": one.demanded,
                "verdict": one.verdict.value,
                "reason": one.reason,
                "weak": one.is_weak,
                "fitted": {name: other.verdict.value for name, other in one.others},
            }
            for one in result.judged
        ],
        "headline": msgspec.to_builtins(result.headline),
        "tables": msgspec.to_builtins(result.tables),
        "failures": msgspec.to_builtins(result.failures),
        "witness": msgspec.to_builtins(result.witness),
        "runs": [
            {
                "run": row.run,
                "labels": dict(row.labels),
                "parameters": dict(row.parameters),
                "measures": dict(row.measures),
                "verdict": dict(row.verdict),
            }
            for row in result.results.rows
        ],
    }


def save(result: StudyResult, folder: Path) -> list[Path]:
    """Write `results.json` and `runs.csv` into `folder`; equal results give equal files."""
    with writing(folder):
        return _save(result, folder)


def _save(result: StudyResult, folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    document, runs = folder / RESULTS_FILE, folder / RUNS_FILE
    document.write_bytes(msgspec.json.format(msgspec.json.encode(as_document(result)), indent=1) + b"\n")
    rows = result.results.rows
    labels = list(rows[0].labels) if rows else []
    measures = sorted({name for row in rows for name in row.measures})
    with runs.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["run", *labels, "ok", *measures])
        for row in rows:
            values = [row.measures.get(name) for name in measures]
            ok = row.ok if row.judged else None  # empty: not judged
            writer.writerow([row.run, *row.labels.values(), ok, *values])
    return [document, runs]

"""Every `--help` and the documents of `--json`, text for text as recorded (`record_cli.py`)."""

from __future__ import annotations

from golden.record_cli import documents, helps
from golden.record_studies import changes, load


def test_every_help_is_as_recorded() -> None:
    assert changes(load("cli-help"), helps()) == []


def test_every_json_document_is_as_recorded() -> None:
    assert changes(load("cli-json"), documents()) == []

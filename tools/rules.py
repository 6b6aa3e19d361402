"""Print which place implements which rule of the five papers, as a table in Markdown.

    python tools/rules.py [--write]

A mark is a comment above a function or a class: `# rule 001 F5: an entry is covered only by ...` names the
paper, the rule (a flaw of the printed algorithm that is repaired there, a code, a line, a section; "ours" is
an extension) and what it says. `--write` puts the table into docs/architecture.md between its two markers.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "whence"
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- rules:begin -->", "<!-- rules:end -->"

PAPERS = {
    "000": "causal aggregation on VCube",
    "001": "causal barriers in opportunistic networks",
    "002": "deadline-constrained causal order",
    "003": "PRC-broadcast",
    "004": "causality domains",
}
LOOKS_LIKE_A_MARK = re.compile(r"^\s*# rule\b")
MARK = re.compile(r"^ *# rule (\d{3}) ([^:|]+): ([^|]+)$")


class Rule(NamedTuple):
    """One mark: a rule of a paper, and the place that implements it."""

    paper: str
    name: str
    text: str
    path: str  # below src/whence
    place: str  # class.function


class MarkError(Exception):
    """A mark that cannot be read; the text says where and why."""


def rules_of(path: Path) -> Iterator[Rule]:
    """Yield the marks of one file, in its order."""
    lines = path.read_text().splitlines()
    marked = [number for number, line in enumerate(lines, 1) if LOOKS_LIKE_A_MARK.match(line)]
    if not marked:
        return
    places = _places(ast.parse("\n".join(lines)))
    name = path.relative_to(SOURCE).as_posix() if path.is_relative_to(SOURCE) else path.name
    for number in marked:
        found = MARK.match(lines[number - 1])
        if found is None or found[1] not in PAPERS:
            raise MarkError(f"{name}:{number}: {lines[number - 1].strip()!r} is not `# rule 00n name: what`")
        below = number + 1
        while LOOKS_LIKE_A_MARK.match(lines[below - 1]):
            below += 1
        if below not in places:
            raise MarkError(f"{name}:{number}: no function or class follows the mark")
        yield Rule(found[1], found[2].strip(), found[3].strip(), name, places[below])


def _places(tree: ast.Module) -> dict[int, str]:
    """Return the first line of every function and class, decorators included, with its qualified name."""
    places: dict[int, str] = {}

    def walk(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                first = min([child.lineno, *(each.lineno for each in child.decorator_list)])
                places[first] = prefix + child.name
                walk(child, f"{prefix}{child.name}.")

    walk(tree, "")
    return places


def all_rules(source: Path = SOURCE) -> list[Rule]:
    """Return every mark below a folder, by paper and rule."""
    found = [rule for path in sorted(source.rglob("*.py")) for rule in rules_of(path)]
    return sorted(found, key=lambda rule: (rule.paper, _in_order(rule.name), rule.path, rule.place))


def _in_order(name: str) -> list[tuple[bool, int, str]]:
    """Sort "flaw 2" before "flaw 10"."""
    parts = re.findall(r"\d+|\D+", name)
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]


def table(rules: list[Rule]) -> str:
    """Return the rules as Markdown, a table for each paper."""
    parts = []
    for paper, title in PAPERS.items():
        rows = [
            f"| {rule.name} | {rule.text} | `{rule.path}`: `{rule.place}` |"
            for rule in rules
            if rule.paper == paper
        ]
        if rows:
            parts.append(
                "\n".join([f"**{paper}, {title}**", "", "| rule | what | place |", "|---|---|---|", *rows])
            )
    return "\n\n".join(parts)


def page_with(rules: list[Rule], page: str) -> str:
    """Return the page with its table replaced."""
    before, found, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not found or not end:
        raise MarkError(f"{PAGE.name} has no table between {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{table(rules)}\n\n{END}{after}"


def main() -> None:
    """Print the table, or write it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--write", action="store_true", help="write it into docs/architecture.md")
    rules = all_rules()
    if parser.parse_args().write:
        PAGE.write_text(page_with(rules, PAGE.read_text()))
    else:
        print(table(rules))


if __name__ == "__main__":
    main()

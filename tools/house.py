"""Numbers that describe the structure of the code base: a report, not a gate.

    python tools/house.py [--live] [--names] [--json]

Prints a table `what | now | aim`; `--names` adds what was counted, `--json` is for programs. How a number is
counted is said where it is counted. Everything is read from the source, so that a module may move without a
change here; only `--live` runs the package (`live_path.py`).
"""

from __future__ import annotations

import argparse
import ast
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from live_path import one_message

ROOT = Path(__file__).resolve().parent.parent
PACKAGE, SUPPORT = ROOT / "src" / "whence", ROOT / "tests" / "support"
ROLES = {"grid", "measures", "claims", "page"}  # every study has them, and one reader for each is no fault
NET = re.compile(r"(^|_)(net|network|world)$")  # how harnesses that carry packets in tests are called

Graph = Mapping[str, set[str]]


class Row(NamedTuple):
    """One line of the report; `names` says what was counted, where that helps."""

    what: str
    now: str
    aim: str
    names: tuple[str, ...] = ()


class Module(NamedTuple):
    """One file of the package; `types` are its imports for the type checker only."""

    file: Path
    text: str
    tree: ast.Module
    imports: set[str]
    types: list[str]

    @property
    def path(self) -> str:
        """Where it stands below src/whence."""
        return self.file.relative_to(PACKAGE).as_posix()


Modules = Mapping[str, Module]


def read() -> dict[str, Module]:
    """Every module of the package by its dotted name."""
    files = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    modules = {}
    for name, file in files.items():
        text = file.read_text(encoding="utf-8")
        module = Module(file, text, ast.parse(text), set(), [])
        guarded = {
            inner
            for node in ast.walk(module.tree)
            if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
            for statement in node.body
            for inner in ast.walk(statement)
        }
        for node in ast.walk(module.tree):
            found = _targets(node, file, files) - {name}
            if node in guarded:
                module.types.extend(sorted(found))
            else:
                module.imports.update(found)
        modules[name] = module
    return modules


def _targets(node: ast.AST, file: Path, known: Mapping[str, Path]) -> set[str]:
    """The modules of the package that an import names: the modules themselves, not the packages around."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names if alias.name in known}
    if isinstance(node, ast.ImportFrom):
        around = file.relative_to(PACKAGE.parent).parts[: -node.level] if node.level else ()
        home = ".".join([*around, *filter(None, [node.module])])
        wanted = (f"{home}.{alias.name}" for alias in node.names if home in known)
        return {name if name in known else home for name in wanted}
    return set()


def single_sibling(modules: Modules) -> list[str]:
    """Modules that exactly one file of the package imports, and that file stands in the same folder.

    Every import counts: at the top, inside a function, for types only. What is found by a string (commands,
    studies, public names) has no importer here. `__init__` and the four roles of a study do not count.
    """
    importers = defaultdict(list)
    for module in modules.values():
        for target in module.imports.union(module.types):
            importers[target].append(module.file.parent)
    return [
        name
        for name, module in modules.items()
        if importers[name] == [module.file.parent]
        and module.file.stem != "__init__"
        and not (module.path.startswith("studies/") and module.file.stem in ROLES)
    ]


def components(graph: Graph) -> list[frozenset[str]]:
    """Modules that reach each other by imports (most are alone), each set after all that it imports."""

    def below(node: str) -> set[str]:
        reached: set[str] = set()
        todo = [node]
        while todo:
            new = graph[todo.pop()] - reached
            reached |= new
            todo += new
        return reached

    reach = {node: below(node) for node in graph}
    found = {frozenset({node, *(each for each in reach[node] if node in reach[each])}) for node in graph}
    return sorted(found, key=lambda members: len(reach[min(members)] | members))  # importers reach more


def longest_chain(graph: Graph) -> int:
    """How many modules the longest chain of imports has; a cycle counts as one."""
    home: dict[str, int] = {}
    length: list[int] = []
    for number, members in enumerate(components(graph)):
        home |= dict.fromkeys(members, number)
        below = {home[target] for member in members for target in graph[member]} - {number}
        length.append(1 + max((length[each] for each in below), default=0))
    return max(length)


def class_bases(modules: Modules) -> dict[str, list[str]]:
    """Every top-level class by its full name, and those of its direct bases that are the package's own."""
    wanted: dict[str, list[str]] = {}
    for home, module in modules.items():
        names = {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in ast.walk(module.tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef):
                asked = (ast.unparse(base).partition("[")[0].partition(".") for base in node.bases)
                full = [names.get(head, f"{home}.{head}") + dot + rest for head, dot, rest in asked]
                wanted[f"{home}.{node.name}"] = full
    return {name: [base for base in bases if base in wanted] for name, bases in wanted.items()}


def depth(name: str, bases: Mapping[str, list[str]]) -> int:
    """How many classes of the package stand in its longest line of inheritance, itself included."""
    return 1 + max((depth(base, bases) for base in bases[name]), default=0)


def places(modules: Iterable[Module], pattern: str) -> list[str]:
    """Where a regular expression matches, as file:line."""
    return [
        f"{module.path}:{module.text.count(chr(10), 0, match.start()) + 1}"
        for module in modules
        for match in re.finditer(pattern, module.text, re.MULTILINE)
    ]


def rooms(modules: Iterable[Module]) -> Counter[str]:
    """The lines of each folder of the package: where it grew."""
    found: Counter[str] = Counter()
    for module in modules:
        found[module.path.partition("/")[0] if "/" in module.path else "whence"] += module.text.count("\n")
    return found


def row_makers(modules: Iterable[Module]) -> list[str]:
    """Classes and functions that turn effects of a core into rows of a trace.

    One that tests what kind of effect it has (`isinstance` or `type(...) is` with a name imported from a
    module called `effects`) and calls `event` or `_event`. Kernels write rows too, but know no effects.
    """
    found = []
    for module in modules:
        sources = (node for node in ast.walk(module.tree) if isinstance(node, ast.ImportFrom))
        lists = [node.names for node in sources if (node.module or "").endswith(".effects")]
        effects = "|".join(alias.name for names in lists for alias in names)
        test = re.compile(rf"\bisinstance\(\w+, \(?({effects})\b|\btype\(\w+\) is ({effects})\b")
        for node in module.tree.body if effects else ():
            text = ast.unparse(node)
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and test.search(text):
                found += [f"{module.path}:{node.name}"] * bool(re.search(r"(?<!def )\b_?event\(", text))
    return found


def report(modules: Modules) -> Iterator[Row]:
    """Every number that is read from the source."""

    def row(what: str, aim: str, names: Iterable[str]) -> Row:
        names = tuple(names)
        return Row(what, f"{len(names)}", aim, names)

    every = modules.values()
    support = sorted(SUPPORT.rglob("*.py"))
    support_lines = sum(file.read_text(encoding="utf-8").count("\n") for file in support)
    plain = sum(module.file.stem != "__init__" for module in every)
    yield Row("lines in src", f"{sum(module.text.count(chr(10)) for module in every):,}", "<= 53,000")
    for room, lines in rooms(every).most_common():
        yield Row(f"  of these in {room}", f"{lines:,}", "")
    yield Row("modules without __init__", f"{plain}", "<= 250")
    yield Row("lines and files in tests/support", f"{support_lines:,} in {len(support)}", "<= 4,500 in 32")
    yield row("nets in tests/support", "1", (file.stem for file in support if NET.search(file.stem)))

    untyped = {name: module.imports for name, module in modules.items()}
    typed = {name: module.imports.union(module.types) for name, module in modules.items()}
    guarded = (f"{name} -> {target}" for name, module in modules.items() for target in module.types)
    yield row("modules that only one sibling imports", "<= 30", single_sibling(modules))
    for what, graph in (("with", typed), ("without", untyped)):
        rings = sorted((each for each in components(graph) if len(each) > 1), key=len)[::-1]
        sizes = f" (of {', '.join(str(len(ring)) for ring in rings)})" if rings else ""
        names = tuple(" ".join(sorted(ring)) for ring in rings)
        yield Row(f"import cycles {what} TYPE_CHECKING", f"{len(rings)}{sizes}", "0", names)
    yield row("imports under TYPE_CHECKING", "<= 25", guarded)
    yield Row("longest chain of imports", f"{longest_chain(typed)}", "<= 20")

    bases = class_bases(modules)
    named = Counter(full.rpartition(".")[2] for full in bases)
    parents = Counter(base for each in bases.values() for base in each)
    depths = (depth(full, bases) for full in bases if full.startswith("whence.protocols."))
    yield row("class names defined twice", "<= 15", (name for name, count in named.items() if count > 1))
    yield row("classes with one subclass", "<= 6", (name for name, count in parents.items() if count == 1))
    yield Row("inheritance depth in protocols", f"{max(depths, default=0)}", "<= 4")

    others = (module for module in every if module.path != "sim/run.py")
    yield row("def simulate_to beside sim/run's own", "0", places(others, r"\bdef simulate_to\b"))
    yield row("classes named *Outcome", "1", (full for full in bases if full.endswith("Outcome")))
    yield row("scenario.name compared", "0", places(every, r"\bscenario\.name [!=]="))
    yield row("places that make trace rows from effects", "1", row_makers(every))

    for room, aim in (("session", "0"), ("live", "<= 9")):
        inside = (module for module in every if module.path.startswith(f"{room}/"))
        found = places(inside, r"^ *(import|from) asyncio\b")
        yield row(f"files of {room} that import asyncio", aim, sorted({at.partition(":")[0] for at in found}))
    hidden = (module for module in every if module.path != "live/group.py")  # a Group is its node's face
    yield row("reaches through `_node.` beside Group's", "<= 5", places(hidden, r"\b_node\.\w"))


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(description="Numbers that describe the structure of the code base.")
    parser.add_argument("--live", action="store_true", help="also follow one message between two live nodes")
    parser.add_argument("--names", action="store_true", help="show what was counted")
    parser.add_argument("--json", action="store_true", help="print a list of objects")
    chosen = parser.parse_args()
    rows = list(report(read()))
    if chosen.live:
        rows.append(Row("functions and files that a live broadcast passes", *one_message()))
    if chosen.json:
        print(json.dumps([row._asdict() for row in rows], indent=2))
        return
    wide, middle = (max(len(row[column]) for row in rows) for column in (0, 1))
    for row in [Row("what", "now", "aim"), *rows]:
        print(f"{row.what:{wide}} | {row.now:>{middle}} | {row.aim}")
        if chosen.names:
            print("".join(f"    {name}\n" for name in row.names), end="")


if __name__ == "__main__":
    main()

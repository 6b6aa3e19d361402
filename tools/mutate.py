"""How many changes of a core its tests find: the rows "m of n mutants, k" of CONTRIBUTING.md.

    python tools/mutate.py --list
    python tools/mutate.py section_4

A mutant has one change in a function of the modules under test: another operator or comparison, a condition
turned round, a number raised, a line forgotten. Which ones are tried is drawn, the same ones each time. Every
mutant meets the runs that `make test` has, until five of them find it; one that fewer than two find meets
others of the slow suite, too, up to three times as many. To find is to fail, or not to end in time.

The checkout is not written to: each mutant has a process of its own, which imports the changed module.
"""

from __future__ import annotations

import argparse
import ast
import importlib.abc
import importlib.machinery
import importlib.util
import os
import random
import re
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, product
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SOURCE, TESTS = ROOT / "src", ROOT / "tests"
ENOUGH, TOO_FEW = 5, 2  # runs that find a mutant: no more are looked for; the others are tried, too
OTHERS = 3  # times as many other runs at most
MEMORY_BYTES = 8 << 30  # a mutant that never ends would take all there is
LEFT_OUT = re.compile(r"explain|save|restore|check|repr")  # other tests are for these
HEAVY = ("hypothesis.stateful", "msgspec", "numba", "numpy", "pyarrow.parquet", "pytest")  # imported once
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.LShift: ast.RShift,
    ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


class Change(NamedTuple):
    """A field of a node of a syntax tree gets another value."""

    kind: str
    line: int
    place: str  # class.function
    node: ast.AST
    field: str
    value: object


class Runs(NamedTuple):
    """What one run of a test is; what those of `make test` are given, and the other ones."""

    run: Callable[..., object]
    few: Sequence[Any]
    others: Sequence[Any]


class Campaign(NamedTuple):
    """Mutants of modules, and the runs that meet them."""

    test: str  # the file, without its ending
    modules: tuple[str, ...]
    mutants: int
    runs: Callable[[Any], Runs] = lambda test: Runs(
        test.one_run, range(test.ALWAYS), range(test.ALWAYS, test.ALL)
    )
    only: str = ""  # a pattern of the places
    limit_s: float = 5  # CPU; a run that takes longer hangs


def changes(tree: ast.AST, place: str = "", inside: bool = False) -> Iterator[Change]:
    """Yield all changes that there are of the functions below a node."""
    for node in ast.iter_child_nodes(tree):
        name, within = place, inside
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{place}.{node.name}".lstrip(".")
            within = inside or not isinstance(node, ast.ClassDef)
        if within:
            for kind, at, field, value in _changes_of(node):
                # What was never set is seen at once.
                if kind != "forgotten" or not name.endswith("__init__"):
                    yield Change(kind, getattr(at, "lineno", 0), name, node, field, value)
        yield from changes(node, name, within)


def _changes_of(node: ast.AST) -> Iterator[tuple[str, ast.AST, str, object]]:
    """Yield the changes of one node: kind, where it stands, field, value."""
    match node:
        case ast.Compare(ops=[op, *rest]) if type(op) in SWAPS:
            yield "comparison", node, "ops", [SWAPS[type(op)](), *rest]
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in SWAPS:
            yield "operator", node, "op", SWAPS[type(op)]()
        case ast.BoolOp(op=op, values=values):
            yield "and, or", node, "op", SWAPS[type(op)]()
            yield "condition left out", node, "values", [*values[:-1], values[0]]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "not left out", node, "operand", ast.UnaryOp(ast.Not(), operand)
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield "negated", node, "test", ast.UnaryOp(ast.Not(), test)
            if isinstance(node, ast.If):
                yield "never", node, "test", ast.Constant(False)
                yield "always", node, "test", ast.Constant(True)
        case ast.Constant(value=bool() as truth):
            yield "other truth", node, "value", not truth
        case ast.Constant(value=int() as number):
            yield "number + 1", node, "value", number + 1
        case ast.Name(id="min" | "max" as name, ctx=ast.Load()):
            yield "min, max", node, "id", {"min": "max", "max": "min"}[name]
    for field in ("body", "orelse", "finalbody"):
        lines: Any = getattr(node, field, None)
        for at, line in enumerate(lines if isinstance(lines, list) else ()):
            if _may_be_forgotten(line):
                yield "forgotten", line, field, [*lines[:at], ast.Pass(), *lines[at + 1 :]]


def _may_be_forgotten(line: ast.stmt) -> bool:
    match line:
        case ast.Expr(value=ast.Constant()):
            return False  # a docstring
        case ast.Expr() | ast.AugAssign() | ast.Continue() | ast.Break():
            return True
        case ast.Assign(targets=[ast.Subscript() | ast.Attribute(), *_]):
            return True
    return False


def file_of(module: str) -> Path:
    """Return the file of a module, without an import: after one, a mutant would not be imported."""
    return SOURCE / (module.replace(".", "/") + ".py")


def drawn(name: str, campaign: Campaign) -> Iterator[tuple[str, Change, CodeType]]:
    """Yield the mutants of a campaign, of all kinds as evenly as can be: module, change, changed code."""
    kinds: dict[str, list[tuple[str, int]]] = {}
    for module in campaign.modules:
        for number, change in enumerate(changes(ast.parse(file_of(module).read_text()))):
            if re.search(campaign.only, change.place) and not LEFT_OUT.search(change.place):
                kinds.setdefault(change.kind, []).append((module, number))
    draw = random.Random(name)
    for places in kinds.values():
        draw.shuffle(places)
    rounds = (
        [places[turn] for places in kinds.values() if turn < len(places)] for turn in range(campaign.mutants)
    )
    for module, number in islice((each for turn in rounds for each in turn), campaign.mutants):
        tree = ast.parse(file_of(module).read_text())
        change = next(islice(changes(tree), number, None))
        setattr(change.node, change.field, change.value)
        yield module, change, compile(ast.fix_missing_locations(tree), file_of(module), "exec")


class Mutated(importlib.abc.MetaPathFinder):
    """Finds one module with other code than its file has."""

    def __init__(self, module: str, code: CodeType) -> None:
        self.module, self.code = module, code

    def find_spec(self, name: str, path: Any, target: object = None) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of the mutant, or None for any other module."""
        spec = importlib.machinery.PathFinder.find_spec(name, path) if name == self.module else None
        if spec is not None:
            spec.loader.get_code = lambda _: self.code  # type: ignore[union-attr]
        return spec


def finds(run: Callable[[Any], object], given: Any, limit_s: float) -> bool:
    """Whether a run fails, or takes more CPU time than it may (0: any)."""
    signal.setitimer(signal.ITIMER_PROF, limit_s)
    try:
        run(given)
    except BaseException:  # noqa: BLE001 - a mutant may raise anything
        return True
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return False


def meet(campaign: Campaign, mutant: tuple[str, CodeType] | None, tell: Callable[[str], object]) -> None:
    """Tell how many runs and others there are, and of each: "f" (it finds the mutant, or fails) or "."."""
    signal.signal(signal.SIGPROF, signal.default_int_handler)  # no core takes KeyboardInterrupt for its own
    if mutant:
        sys.meta_path.insert(0, Mutated(*mutant))
    run, few, others = campaign.runs(importlib.import_module(campaign.test.replace("/", ".")))
    others = others[: OTHERS * len(few)]
    tell(f"{len(few)} {len(others)} ")
    found = 0
    for given_each, enough in ((few, ENOUGH), (others if mutant else (), TOO_FEW)):
        for given in given_each:
            if found >= enough:
                break
            hit = finds(run, given, campaign.limit_s if mutant else 0)
            found += hit
            tell("f" if hit else ".")
        tell(" ")


def told(campaign: Campaign, mutant: tuple[str, CodeType] | None = None) -> tuple[int, int, str, str]:
    """Return what `meet` tells in a process of its own."""
    out, into = os.pipe()
    child = os.fork()
    if not child:
        try:
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            meet(campaign, mutant, lambda text: os.write(into, text.encode()))
        finally:
            os._exit(sys.exc_info()[0] is not None)
    os.close(into)
    with os.fdopen(out) as pipe:
        text = pipe.read()
    if os.waitpid(child, 0)[1]:  # killed by the run that it met, or no run could be imported
        text = f"{text}f" if text else "0 0 " + "f" * ENOUGH
    few, others, by_few, by_others, *_ = [*text.split(" "), ""]
    return int(few), int(others), by_few, by_others


def outcome(name: str, campaign: Campaign) -> Iterator[str]:
    """Yield a line for each mutant, and what they come to."""
    few, others, faults, _ = told(campaign)
    if not few or "f" in faults:
        sys.exit(f"error: {name} fails without a mutant: run tests/{campaign.test}.py")
    found: list[int] = []
    alone = 0
    for module, change, code in drawn(name, campaign):
        _, _, by_few, by_others = told(campaign, (module, code))
        found.append(by_few.count("f"))
        alone += not found[-1] and "f" in by_others
        besides = f", others {by_others.count('f')} of {len(by_others)}" if by_others else ""
        tried = f"{found[-1]} of {len(by_few)}{besides}"
        yield f"{module}:{change.line} {change.place}: {change.kind}: {tried}"
    some = [count for count in found if count]
    least = min(some, default=0)
    yield f"{name}: {len(found)} mutants; {few} runs find {len(some)} of them, each by {least} or more"
    yield f"{others} others find {alone} more; none finds {len(found) - len(some) - alone}"


def sizes(test: Any) -> Runs:
    """Return the runs of a test of several sizes."""
    every = list(product(range(test.ALL), test.SIZES))
    few = test.ALWAYS * len(test.SIZES)
    return Runs(lambda given: test.one_run(given[1], given[0]), every[:few], every[few:])


def worlds(test: Any) -> Runs:
    """Return random worlds of three kinds."""
    kinds = [("barrier", False, test.RUNS), ("oppnet", False, test.RUNS), ("barrier", True, test.JOINERS)]
    few = [(name, seed, joiners) for name, joiners, count in kinds for seed in range(count)]
    more = range(test.JOINERS, test.RUNS_SLOW)
    others = [(name, seed, joiners) for seed in more for name, joiners, _ in kinds]
    return Runs(lambda given: test.one_run(*given), few, others)


def variants(test: Any) -> Runs:
    """Return the worlds of each variant: more of those that take what comes together as runs."""
    every = list(product(range(5 * test.SEEDS), test.MODES))
    few = [each for each in every if each[0] < (test.SEEDS if test.takes_runs(each[1]) else test.SEEDS_PLAIN)]
    others = [each for each in every if each not in few]
    return Runs(lambda given: test.one_run(given[1], given[0]), few, others)


def crashes(test: Any) -> Runs:
    """Return scenarios, each with a crash after every step."""
    others = [seed for seed in range(test.ALL) if seed not in test.FEW]
    return Runs(lambda seed: test.storms_of([seed]), test.FEW, others)


def examples(test: Any) -> Runs:
    """Return whole runs of Hypothesis with seeds, which remember nothing and shrink nothing."""
    from hypothesis import HealthCheck, Phase, core, settings

    def run(given: tuple[int, int]) -> None:
        plain: Any = {
            "database": None,
            "phases": [Phase.generate],
            "suppress_health_check": list(HealthCheck),
        }
        settings.register_profile("mutants", **plain)
        settings.load_profile("mutants")
        core.global_force_seed = given[0]  # type: ignore[assignment]  # as its plugin for pytest does
        test.drive_machine(given[1])

    larger = min(test.EXAMPLES_SLOW, OTHERS * test.EXAMPLES)
    return Runs(run, [(seed, test.EXAMPLES) for seed in (0, 1, 2)], [(seed, larger) for seed in (3, 4)])


def named(folder: str, *names: str) -> tuple[str, ...]:
    """Return the modules with these names in a folder."""
    return tuple(f"whence.{folder}.{name}" for name in names)


VCUBE = ("whence.protocols.vcube.core", "whence.overlay.hypercube")
BARRIER = named("protocols.barrier", "order", "safe", "broadcast", "oppnet", "carry")
DEADLINE = named("protocols.deadline", "tdca", "odca")
PRC = named("protocols.prc", "prc", "links", "link_memory")
SERVERS = named("session", "durable", "records", "outbox", "links")
DOMAINS = SERVERS + named("protocols.domains", "domains", "matrix", "clock")
RUNS = ("whence.core.protocol", *named("protocols.baselines", "flooding", "fifo", "vector"))
CAMPAIGNS = {
    "vcube_machine": Campaign("property/test_vcube_machine", VCUBE, 40),
    "vcube_state_machine": Campaign("property/test_vcube_machine", VCUBE[:1], 24, examples, limit_s=20),
    "section_4": Campaign("paper/test_000_section_4", VCUBE, 40, sizes),
    "vcube_kernel": Campaign("equivalence/test_vcube_kernel", VCUBE, 30),
    "oppnet_kernel": Campaign("equivalence/test_oppnet_kernel", BARRIER, 30),
    "deadline_kernel": Campaign("equivalence/test_deadline_kernel", DEADLINE, 30),
    "prc_kernel": Campaign("equivalence/test_prc_kernel", PRC, 30),
    "deadline_runs": Campaign("simulation/test_deadline_runs", DEADLINE, 40),
    "prc_machine": Campaign("property/test_prc_machine", PRC, 40),
    "barrier_random": Campaign("property/test_barrier_random", BARRIER, 40, worlds),
    "domain_crashes": Campaign("simulation/test_domain_crashes", DOMAINS, 80, crashes, limit_s=20),
    "receive_many": Campaign(
        "property/test_receive_many", RUNS, 30, variants, "receive_many|receive_runs|take_alone"
    ),
}


def main() -> None:
    """Run a campaign, or list them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("name", nargs="?", choices=CAMPAIGNS)
    parser.add_argument("--list", action="store_true", help="the campaigns")
    given = parser.parse_args()
    if given.list or not given.name:
        for name, campaign in CAMPAIGNS.items():
            print(f"{name}: tests/{campaign.test}.py, {campaign.mutants} of {', '.join(campaign.modules)}")
        return
    if os.environ.get("PYTHONHASHSEED") != "0":  # what a mutant does may follow the order of a set
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": "0"})
    sys.path[:0] = [str(SOURCE), str(TESTS)]
    for module in HEAVY:
        importlib.import_module(module)
    for line in outcome(given.name, CAMPAIGNS[given.name]):
        print(line, flush=True)


if __name__ == "__main__":
    main()

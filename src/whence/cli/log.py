"""`whence log`: foreign logs; and what `whence verify` does with one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from whence.cli import console
from whence.cli.console import AsJson
from whence.errors import MisuseError

if TYPE_CHECKING:
    from whence.foreign.mapping import LogMapping
    from whence.foreign.model import Contract
    from whence.foreign.report import Audit

app = typer.Typer(no_args_is_help=True, help="Look into logs that others wrote.")


@app.callback()
def _root() -> None:
    """Look into logs that others wrote."""


@app.command("guess")
def guess_(
    log: Annotated[Path, typer.Argument(help="A log: CSV, JSON lines, Parquet, ShiViz, OTLP, MCAP.")],
    as_json: AsJson = False,
) -> None:
    """Draft a mapping for a log, and say which properties it would make judgeable."""
    from whence.foreign.guess import guess
    from whence.foreign.report import NOT_JUDGED

    found = guess(log)
    if as_json:
        console.print_json(found)
        return
    console.out.print(found.mapping, markup=False, soft_wrap=True)
    for name, each in found.audit.properties.items():
        if each.status == NOT_JUDGED:
            said = f"# {name}: not judged: {each.why}; {each.remedy}"
        else:
            said = f"# {name}: judged"
        console.out.print(said, markup=False, soft_wrap=True)


class LogOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `whence verify` for a foreign log."""

    map_: str | None = None
    contract: list[str] = []
    require: list[str] = []
    scope: str | None = None

    @property
    def given(self) -> bool:
        """Whether any was given."""
        return self != LogOptions()


class SparkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Whether, where and with how much memory Spark judges a foreign log."""

    wanted: bool
    master: str | None = None
    blocks: int | None = None
    memory_bytes: int | None = None


def audit(log: Path, options: LogOptions, witnesses: int, spark: SparkOptions, as_json: bool) -> None:
    """Judge a foreign log; exit 0 ok, 1 broken, 3 unknown."""
    from whence.foreign.judge import judge
    from whence.foreign.mapping import load_mapping
    from whence.foreign.read import complete_mapping, read_log
    from whence.foreign.report import text_of

    mapping = complete_mapping(log, None if options.map_ is None else load_mapping(options.map_))
    contract = _contract(mapping, options)
    if options.scope is not None:
        names = tuple(each.strip() for each in options.scope.split(","))
        mapping = msgspec.structs.replace(
            mapping, scope=names, event=mapping.event | {"session": list(names)}
        )
    mapping = msgspec.structs.replace(mapping, contract=contract)
    if spark.wanted:
        found = _by_spark(log, mapping, witnesses, spark)
    else:
        found = judge(read_log(log, mapping), str(log), findings_max=witnesses)
    if as_json:
        console.print_json(found)
    else:
        console.out.print(text_of(found, witnesses), markup=False, soft_wrap=True)
    raise typer.Exit(found.exit)


def _by_spark(log: Path, mapping: LogMapping, witnesses: int, options: SparkOptions) -> Audit:
    with console.progress("starting Spark"):
        from whence.spark.audit.judge import MEMORY_BYTES, audit_log
        from whence.spark.session import get_session

        session = get_session("whence verify", master=options.master)
    memory_bytes = options.memory_bytes or MEMORY_BYTES
    with console.progress("judging"):
        return audit_log(
            session, log, mapping, findings_max=witnesses, blocks=options.blocks, memory_bytes=memory_bytes
        )


def _contract(mapping: LogMapping, options: LogOptions) -> Contract:
    """The mapping's contract with what the command line states on top."""
    from whence.foreign.mapping import contract_of

    table: dict[str, object] = {}
    for each in options.contract:
        key, equals, value = each.partition("=")
        if not equals:
            raise MisuseError(f"--contract {each}", "it is not KEY=VALUE", "Write it like order=causal")
        several = key.strip() in {"complete", "members", "require"}
        words = [word.strip() for word in value.split(",")]
        table[key.strip()] = words if several else value.strip()
    stated = contract_of(table, "--contract")
    over = {name: getattr(stated, name) for name in stated.__struct_fields__ if getattr(stated, name)}
    contract = msgspec.structs.replace(mapping.contract, **over)
    return msgspec.structs.replace(contract, require=(*contract.require, *options.require))

"""The command `whence`: one table of commands, each imported only when it is called.

A command module `whence.cli.<name>` defines `command`, a plain function with typer's annotations, or
`app`, a `typer.Typer` with sub-commands. It lets `WhenceError` pass; this module turns it into two
lines and exit code 2. Exit codes: 0 done; 1 the result is no; 2 the user can fix it; 3 a log cannot
tell; 70 a bug of ours; 130 interrupted.
"""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from whence.errors import (
    DISK_ERRNOS,
    MisuseError,
    PlatformError,
    WhenceError,
    disk_problem,
    missing_extra,
)

EXIT_MISUSE = 2
EXIT_BUG = 70  # EX_SOFTWARE of sysexits.h
EXIT_INTERRUPTED = 130

# What Ctrl-C leaves behind, and how to go on.
NOTHING_KEPT = "nothing was written; run the same command again"
KEPT = {
    "tour": "what was finished is in its folder; the same command begins again",
    "node": "what a store has is kept, without a store nothing is; the same command joins again",
    "carry": "the log is kept in its store; the same command goes on with it",
    "simulate": "the trace in --out has what happened so far, marked unfinished; run it again to have it all",
    "emulate": "traces in --out hold what had happened so far; run it again to have all",
    "keys": "keys that were written are kept; remove the folder and run the same command again",
    "mom": "servers that run and their stores are as they were; run the same command again",
    "sweep": "runs that were finished are kept in --out; the same command goes on with the rest",
    "stream": "what was written is kept in --out; the same command goes on",
    "explore": "what a --folder keeps is kept; the same command goes on there, or begins again",
    "trace": "an exported file is not complete; run the same command again",
    "study": "runs that were finished are kept in --out; the same command goes on with the rest",
    "gateway": "what a store has is kept, without a store nothing is; the same command joins again",
    "verify": "no verdict was reached (tables keep those of runs that were done); run the same command again",
    "metrics": "no figures were reached; run the same command again",
    "contacts": "a plan in --out is not complete; run the same command again",
    "view": "a page in --out is not complete; run the same command again",
    "sql": "what --save names is not complete; run the same command again",
    "log": "what a --state has is kept; the same command goes on there, or begins again",
}

# Which extra brings a package that a command imports.
EXTRAS = {"pyarrow": "trace", "numpy": "trace", "numba": "lab", "matplotlib": "lab", "jinja2": "lab"}
EXTRAS |= {
    "aiohttp": "gateway",
    "duckdb": "sql",
    "pyspark": "spark",
    "pandas": "spark",
    "google": "spark",
    "cryptography": "tls",
    "mcap": "mcap",
    "textual": "top",
}
TRACE, SPARK = ("trace",), ("lab", "spark")

# typer exports only some of the errors that a bad command line raises.
UsageError: Any = typer.BadParameter.mro()[1]
ClickException: Any = UsageError.mro()[1]

RUN, JUDGE, STUDY = "Run", "Judge", "Study"


class Command(NamedTuple):
    """One line of `whence --help`."""

    name: str
    panel: str
    help: str
    extras: tuple[str, ...] = ()  # without these it can do nothing: asked for before it begins


# The help line is here and not in the command's module, so that --help need not import it.
COMMANDS = (
    Command(
        "tour", RUN, "Show the five systems, each in its own environment: the first command to run.", SPARK
    ),
    Command("node", RUN, "Run a live node of a group from a configuration file."),
    Command("carry", RUN, "Carry a group's log for the programs of this machine: a daemon and its status."),
    Command(
        "gateway", RUN, "Open a group to browsers and other languages: WebSocket and HTTP.", ("gateway",)
    ),
    Command("top", RUN, "Watch running nodes and systems: rates, lag, what waits for what.", ("top",)),
    Command("simulate", RUN, "Simulate a scenario and write its trace."),
    Command(
        "emulate", RUN, "Run live nodes whose meetings follow a contact plan, beside its simulation.", TRACE
    ),
    Command(
        "replay", RUN, "Run a recorded trace through the protocol again and compare every effect.", TRACE
    ),
    Command("keys", RUN, "Make and show keys for TLS between the nodes of a group.", ("tls",)),
    Command("mom", RUN, "Message-oriented middleware: run systems of durable servers, plan their domains."),
    Command("sweep", RUN, "Simulate a grid of scenarios on Spark, one run per task; resumable.", ("spark",)),
    Command("contacts", RUN, "Make a contact plan from positions, traces, timetables or a scenario."),
    Command("stream", RUN, "Put a stream of rows into causal order on Spark; resumable.", ("spark",)),
    Command(
        "explore", JUDGE, "Visit every schedule of a small world; show the shortest counterexample.", TRACE
    ),
    Command(
        "verify",
        JUDGE,
        "Judge a trace or a foreign log: causal order, duplicates, FIFO, completeness.",
        TRACE,
    ),
    Command("log", JUDGE, "Draft a mapping for a log that another program wrote.", TRACE),
    Command("view", JUDGE, "Look at a trace, a log or a finding: one interactive page, no network.", TRACE),
    Command(
        "metrics", JUDGE, "Measure traces on Spark: latency, held time, packets, bytes, buffers.", ("spark",)
    ),
    Command("trace", JUDGE, "Look into traces, and export them.", TRACE),
    Command("sql", JUDGE, "Ask the tables of a sweep: runs, verdicts, findings, summaries.", ("sql",)),
    Command("study", STUDY, "Run a study: a grid, its measures, published numbers, one report page.", SPARK),
    Command("protocols", STUDY, "List the protocols: environment, promises, parameters."),
    Command("version", STUDY, "Say which Whence, Python and libraries these are."),
)


class LazyGroup(TyperGroup):
    """A group whose commands are stand-ins with a help line until one of them is called."""

    def __init__(self, **attrs: Any) -> None:
        super().__init__(**attrs)
        for entry in COMMANDS:
            stand_in = TyperCommand(name=entry.name, help=entry.help, rich_help_panel=entry.panel)
            self.add_command(stand_in)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Called when a command is about to run (or be completed): now import it."""
        for entry in COMMANDS:
            if args and entry.name == args[0]:
                if not {"-h", "--help"} & set(args):
                    require_extras(entry)
                self.commands[entry.name] = load(entry)
        return super().resolve_command(ctx, args)


def require_extras(entry: Command) -> None:
    """Say what is to be installed before the command begins, all of it together."""
    wanted = {*entry.extras} | ({"trace"} if {*entry.extras} & {"lab", "spark", "sql"} else set())
    for package, extra in EXTRAS.items():
        if extra in wanted and find_spec(package) is None:
            raise missing_extra(f"whence {entry.name}", package, ",".join(entry.extras))


def load(entry: Command) -> Any:
    """Import `whence.cli.<name>` and make its typer command."""
    module = import_module(f"whence.cli.{entry.name}")
    sub_app = getattr(module, "app", None)
    if sub_app is not None:
        group = typer.main.get_group(sub_app)
        group.name = entry.name
        group.help = group.help or entry.help
        return group
    single = typer.Typer(add_completion=False, rich_markup_mode="rich")
    single.command(entry.name, help=module.command.__doc__ or entry.help)(module.command)
    return typer.main.get_command(single)


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from whence.studies.environment import version

        typer.echo(f"whence {version()}")
        raise typer.Exit


@app.callback()
def _root(
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show tracebacks and Spark's log (also: WHENCE_DEBUG=1).")
    ] = False,
    plugin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE", help="Use the protocols, kernels and studies of this module; repeatable."
        ),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Whence: causal messaging. A library, a laboratory and an auditor for causal order."""
    if verbose:
        os.environ["WHENCE_DEBUG"] = "1"  # Spark's Python workers inherit it
    if plugin:
        _use(plugin)


def _use(modules: list[str]) -> None:
    """Take up the plug-ins that are asked for; what is wrong with one of them is the user's to know."""
    from whence import plugins
    from whence.protocols import registry

    sys.path.insert(0, str(Path.cwd()))  # as `python -m` does: a protocol of one's own is a file beside
    plugins.use(*modules)
    registry.names()
    for problem in plugins.problems():
        raise problem


def debugging() -> bool:
    """Whether the user asked for tracebacks."""
    return os.environ.get("WHENCE_DEBUG", "") not in ("", "0")


def _say(word: str, text: str, colour: str) -> None:
    sys.stderr.write(typer.style(f"{word}:", fg=colour, bold=True) if _coloured() else f"{word}:")
    sys.stderr.write(f" {text}\n")


def _coloured() -> bool:
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _fail(problem: WhenceError, code: int = EXIT_MISUSE) -> NoReturn:
    """Say what is wrong, why, and what helps; under --json as a JSON document on stdout as well."""
    if debugging():
        traceback.print_exception(problem)
    _tell_machines(type(problem).__name__, problem.what, problem.reason, problem.fix)
    _say("error", f"{problem.what}: {problem.reason}", "red")
    _say("fix", problem.fix, "green")
    try:
        sys.stdout.flush()
    except OSError:
        _drop_output()
    sys.exit(code)


def _tell_machines(kind: str, what: str, reason: str, fix: str) -> None:
    """Under --json: what ended the command, as a JSON document on stdout."""
    if "--json" in _line:
        import json

        told = {"type": kind, "what": what, "reason": reason, "fix": fix}
        with suppress(OSError):  # the output itself may be what cannot be written
            sys.stdout.write(json.dumps({"error": told}) + "\n")


def _fail_os(problem: OSError) -> NoReturn:
    """A missing file or a full disk is the machine's matter, not a bug: no traceback."""
    if problem.errno in DISK_ERRNOS:
        _fail(disk_problem(problem))
    files = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
    if problem.filename is None and not isinstance(problem, files):
        _fail_spark(problem)
    what = problem if problem.filename is None else problem.filename  # pyarrow's name only the path
    fix = "Check that the path exists, and may be read and written"
    _fail(PlatformError(str(what), problem.strerror or type(problem).__name__, fix))


def _fail_spark(problem: Exception) -> NoReturn:
    """Too little memory for a job on Spark is the machine's matter, too."""
    if "pyspark" in sys.modules:
        from whence.spark.progress import SPARK_ERRORS, platform_problem

        found = platform_problem(problem, "the job on Spark") if isinstance(problem, SPARK_ERRORS) else None
        if found is not None:
            _fail(found)
    _fail_bug(problem)


def _fail_bug(problem: Exception) -> NoReturn:
    if not debugging():
        traceback.print_exception(problem)
    fix = "This is a bug in Whence; please report it with the lines above"
    _fail(WhenceError(type(problem).__name__, str(problem), fix), EXIT_BUG)


def _fail_usage(problem: Any) -> NoReturn:
    """A command line that cannot be understood: the nearest word, or where to look."""
    if type(problem).__name__ == "NoArgsIsHelpError":  # not an error: the message is the help
        problem.show()
        sys.exit(EXIT_MISUSE)
    path = "whence" if problem.ctx is None else problem.ctx.command_path
    known = [] if problem.ctx is None else _words_of(problem.ctx)
    asked = [word.partition("=")[0] for word in _line if word.partition("=")[0] in problem.message]
    near = [match for word in asked for match in get_close_matches(word, known, 1) if match not in asked]
    near = [match for match in near if match.startswith("-") == any(word.startswith("-") for word in asked)]
    fix = f"Did you mean {near[0]!r}? Otherwise see" if near else "See"
    reason = problem.format_message().partition(" Did you mean")[0].strip().rstrip(".")
    given = _given_for(getattr(problem, "param", None))
    reason += "" if given is None else f" (given: {given})"
    _fail(MisuseError(path, reason[:1].lower() + reason[1:], f"{fix} `{path} --help`"))


def _given_for(parameter: Any) -> str | None:
    """The value on the command line that an option refuses."""
    for at, word in enumerate(_line):
        option, is_joined, value = word.partition("=")
        if option in getattr(parameter, "opts", ()) and option.startswith("-"):
            return value if is_joined else next(iter(_line[at + 1 :]), None)
    return None


def _words_of(ctx: Any) -> list[str]:
    """What could have been meant: the command's options and sub-commands."""
    options = [option for parameter in ctx.command.params for option in parameter.opts]
    return [*options, *getattr(ctx.command, "commands", {})]


def _interrupted() -> NoReturn:
    """Ctrl-C: one sentence about what is kept, and how to go on."""
    name = next((word for word in _line if word in {entry.name for entry in COMMANDS}), "")
    kept = KEPT.get(name, NOTHING_KEPT)
    _tell_machines("Interrupted", f"whence {name}".strip(), "it was interrupted", kept)
    _say("interrupted", kept, "yellow")
    sys.exit(EXIT_INTERRUPTED)


_line: list[str] = []  # the command line that runs


def main(args: list[str] | None = None) -> NoReturn:
    """Run one command line and exit."""
    _line[:] = sys.argv[1:] if args is None else args
    try:
        code = typer.main.get_command(app).main(args=args, prog_name="whence", standalone_mode=False)
    except KeyboardInterrupt:
        _interrupted()
    except UsageError as problem:
        _fail_usage(problem)
    except ClickException as problem:
        _fail(MisuseError("whence", problem.format_message(), "See `whence --help`"))
    except WhenceError as problem:
        _fail(problem)
    except ModuleNotFoundError as problem:
        package = (problem.name or "").partition(".")[0]
        if package not in EXTRAS:
            _fail_bug(problem)
        _fail(missing_extra("this command", package, EXTRAS[package]))
    except BrokenPipeError:
        _leave_pipe()
    except OSError as problem:
        _fail_os(problem)
    except Exception as problem:  # noqa: BLE001 - the outermost frame: whatever is left is a bug of ours
        _fail_spark(problem)
    if code == EXIT_INTERRUPTED:
        _interrupted()
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # the reader (head, less) left before the last buffer went out
        _leave_pipe()
    except OSError as problem:
        _fail_os(problem)
    sys.exit(code if isinstance(code, int) else 0)


def _leave_pipe() -> NoReturn:
    """Leave quietly when the reader is gone."""
    _drop_output()
    sys.exit(1)


def _drop_output() -> None:
    """What is left to write goes nowhere: Python would complain again when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

"""`whence mom`: message-oriented middleware over domains of causality (docs/mom.md).

up, down, serve         a system of servers as processes
apply                   a changed description, while the system runs
status, send, tail      what people ask a running system
retire, verify          a server that is lost; the traces, judged while it runs
gateway                 STOMP for programs in other languages
dead                    messages at which agents failed permanently
traffic, plan           from traces to proposed domains (cli/plan.py)
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from whence.cli import console
from whence.cli import plan as planning
from whence.cli.console import AsJson, friendly, shown_id
from whence.core.message import MessageId
from whence.errors import ParameterError
from whence.servers.client import Client
from whence.servers.requests import DeadShown, Status, Told
from whence.servers.system import System, read_system

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whence.servers.supervisor import Running, ServerEvent

Description = Annotated[Path, typer.Argument(metavar="SYSTEM.toml", help="The system's description.")]
_ASKED_AT_ONCE = 16
_STATUS_TIMEOUT_S = 10.0
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


# A system as processes


def up(
    description: Description,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Start this server (can be repeated); default: all.", metavar="NAME"),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return when all are up; `whence mom down` stops them.")
    ] = False,
    restart: Annotated[bool, typer.Option(help="Start a server again that dies.")] = True,
) -> None:
    """Start every server of a system as a process of its own, and start again those that die.

    Ctrl-C or SIGTERM stops them in order; they go on from their stores at the next start. A second Ctrl-C
    kills those that have not stopped yet.
    """
    from whence.servers.joining import load_system
    from whence.servers.supervisor import Running

    system = load_system(description, only or None)
    _mention_change(system)
    names = sorted(set(only or system.servers))
    running = Running(system, names, restart=restart, is_all=not only)  # forks: nothing may have a thread yet
    running.stop_on_signals()
    _follow(system, running, len(names), detach=detach)


def _mention_change(system: System) -> None:
    if not system.is_applied:
        console.err.print(
            f"{system.name}: {system.path.name} has changed, and what was applied before runs; "
            "`whence mom apply` takes the change over",
            markup=False,
        )


def _follow(system: System, running: Running, count: int, *, detach: bool) -> None:
    events = running.events()
    if not _follow_starting(system, running, events, count):
        return
    servers = "1 server is" if count == 1 else f"{count} servers are"
    if detach:
        running.detach()
        console.out.print(f"{system.name}: {servers} up (process {running.pid})", markup=False)
        return
    console.err.print(f"{system.name}: {servers} up; Ctrl-C stops", markup=False)
    for event in events:
        if event.kind == "stopping":
            _follow_stopping(system, events, count)
        else:
            _say(event)
    _check_end(system, running.wait())


def _follow_starting(system: System, running: Running, events: Iterator[ServerEvent], count: int) -> bool:
    """Until all are up; False if that was interrupted. A server that cannot start at all is an error."""
    told: dict[str | None, ServerEvent] = {}  # server -> the newest problem
    culprit: str | None = None
    ready: set[str | None] = set()
    with console.progress(f"{system.name}: starting", total=count) as bar:
        for event in events:
            if event.kind == "up":
                return True
            if event.kind == "ready":
                ready.add(event.server)
                bar.update(len(ready))
            elif event.kind == "failed" or (event.kind == "died" and event.server not in told):
                told[event.server] = event
            elif event.kind == "stopping":
                culprit = event.server
        code = running.wait()
        if culprit in told:
            _fail(system, told[culprit])
        _check_end(system, code)
    return False


def _check_end(system: System, code: int) -> None:
    """The exit code of who watches the servers; if it was killed, that is an error."""
    from whence.errors import PlatformError

    if code < 0:
        raise PlatformError(
            f"system {system.name!r}",
            f"the process that watches its servers was ended by signal {-code}; they stop now",
            "Start it again",
        )
    if code:
        raise typer.Exit(code)


def _fail(system: System, problem: ServerEvent) -> NoReturn:
    from whence.errors import PlatformError

    if problem.error is not None:
        raise problem.error.error()
    raise PlatformError(
        f"server {problem.server!r}",
        f"it died ({problem.detail})",
        f"See {system.log_of(problem.server or '')}",
    )


def _follow_stopping(system: System, events: Iterator[ServerEvent], count: int) -> None:
    with console.progress(f"{system.name}: stopping", total=count) as bar:
        for event in events:
            if event.kind == "stopped":
                bar.advance()
            elif event.kind == "killed":
                _say(event)
    console.err.print(
        f"{system.name}: stopped; stores keep what was accepted, and `whence mom up` goes on", markup=False
    )


def _say(event: ServerEvent) -> None:
    import time

    if event.kind in ("started", "down"):
        return
    about = event.detail or (str(event.error.error()) if event.error is not None else "")
    words = " ".join(word for word in (event.server or "all servers", event.kind) if word)
    console.err.print(f"{time.strftime('%H:%M:%S')} {words}{': ' if about else ''}{about}", markup=False)


def serve(
    description: Description,
    name: Annotated[str, typer.Argument(help="The server.")],
) -> None:
    """Run one server of a system in this process, until Ctrl-C or SIGTERM."""
    import logging
    import sys

    from whence.servers.joining import load_system
    from whence.servers.server import LOG_FORMAT, run_server

    logging.basicConfig(level=logging.WARNING, format=LOG_FORMAT, stream=sys.stderr)
    run_server(load_system(description, [name]), name)


def down(
    description: Description,
    name: Annotated[str | None, typer.Argument(help="Stop this server only; `up` leaves it down.")] = None,
    timeout: Annotated[
        float, typer.Option(help="Wait so many seconds for the end.", metavar="SECONDS")
    ] = 90.0,
    now: Annotated[bool, typer.Option("--now", help="Kill servers that have not stopped yet.")] = False,
) -> None:
    """Stop a system, in order; it goes on where it was at the next `whence mom up`."""
    from whence.servers.supervisor import stop_server, stop_system

    system = read_system(description)
    if name is not None:
        stop_server(system, system.require(name), timeout)
        console.out.print(f"{system.name}: {name} is down", markup=False)
        return
    stopped = stop_system(system, timeout, at_once=now)
    text = f"{len(stopped)} servers stopped" if stopped else "no server was running"
    console.out.print(f"{system.name}: {text}", markup=False)


def apply(
    description: Description,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")] = False,
    timeout: Annotated[
        float, typer.Option(help="Wait so many seconds for messages under way, and for starts.", metavar="S")
    ] = 60.0,
) -> None:
    """Take a changed description over while the system runs: servers, domains and agents come and go.

    Only servers whose domains, agents or settings change start again. A change that would make a cycle, or
    strand a message, is refused, and nothing has changed then.
    """
    from whence.servers import apply as applying
    from whence.servers.joining import check_system
    from whence.servers.system import read_described

    described = read_described(description)
    check_system(described)
    if dry_run:
        change = applying.plan(described)
        for line in change.lines():
            console.out.print(line, markup=False)
    else:
        change = applying.apply(
            described, timeout, lambda line: console.out.print(line, markup=False, soft_wrap=True)
        )
    text = "applied" if change.lines() else "nothing has changed"
    console.out.print(f"{described.name}: {'would be ' if dry_run and change.lines() else ''}{text}")


# What people ask a running system


def status(
    description: Description,
    name: Annotated[str | None, typer.Argument(help="Show this server in full.")] = None,
    as_json: _Json = False,
) -> None:
    """Show every server: up or down, links, queues, held messages, clocks; of one server also its routes.

    Exit code 1 if a server (or the named one) is down.
    """
    system = read_system(description)
    names = list(system.servers) if name is None else [system.require(name)]
    answers = _ask_all(system, names)
    if as_json:
        servers = {
            server: answers[server] or {"server": server, "answer": _absent(system, server)}
            for server in names
        }
        console.print_json({"system": system.name, "folder": system.folder, "servers": servers})
    elif name is None:
        _show_all(system, answers)
    else:
        _show_one(system, name, answers[name])
    if None in answers.values():
        raise typer.Exit(1)


def _ask_all(system: System, names: list[str]) -> dict[str, Status | None]:
    from concurrent.futures import ThreadPoolExecutor

    def ask(server: str) -> Status | None:
        from whence.errors import ServerDownError

        try:
            with Client(system, server, _STATUS_TIMEOUT_S) as client:
                return client.status()
        except ServerDownError:
            return None

    with ThreadPoolExecutor(_ASKED_AT_ONCE) as pool:
        return dict(zip(names, pool.map(ask, names), strict=True))


def _show_all(system: System, answers: dict[str, Status | None]) -> None:
    columns = ["server", "state", "domains", "links", "queue in", "queue out", "held", "sent", "delivered"]
    columns += ["reactions", "dead", "clocks"]
    rows: list[tuple[object, ...]] = []
    for server, status_ in answers.items():
        domains = ", ".join(system.graph.names[at] for at in system.graph.domains_of[server])
        if status_ is None:
            rows.append((server, _absent(system, server), domains, *(None,) * (len(columns) - 3)))
            continue
        rows.append(
            (
                server,
                f"up, {status_.restarts} restarts" if status_.restarts else "up",
                domains,
                _links(status_),
                status_.queue_in,
                status_.queue_out,
                status_.held,
                status_.sent,
                status_.delivered,
                status_.reactions,
                status_.dead,
                "+".join(f"{clock.servers}²" for clock in status_.clocks),
            )
        )
    up = sum(answer is not None for answer in answers.values())
    title = f"{system.name}: {up} of {len(answers)} servers up, {len(system.graph.groups)} domains"
    console.out.print(console.table(title, columns, rows, right={"links", "clocks"}))


def _absent(system: System, server: str) -> str:
    """Why there is no answer: no process, or one that does not answer (it starts, it stops, it hangs)."""
    from whence.servers.processes import holder_of

    return "down" if holder_of(system.lock_of(server)) is None else "silent"


def _links(status_: Status) -> str:
    connected = sum(link.state == "connected" for link in status_.links.values())
    return f"{connected}/{len(status_.links)}"


def _show_one(system: System, name: str, status_: Status | None) -> None:
    import msgspec

    if status_ is None:
        console.out.print(f"{name} is {_absent(system, name)}; its log: {system.log_of(name)}", markup=False)
        return
    out, table = console.out, console.table
    store = {} if status_.store is None else msgspec.structs.asdict(status_.store)
    facts = {
        "process": status_.pid,
        "up": f"{status_.up_s:.0f} s",
        "restarts": status_.restarts,
        "agent": status_.agent or "none: messages wait for `whence mom tail`",
        "durable": "yes" if status_.durable else "no",
        "queue in": status_.queue_in,
        "queue out": status_.queue_out,
        "sent": status_.sent,
        "delivered": status_.delivered,
        "reactions": status_.reactions,
        "dead letters": status_.dead,
        "takes no more": ", ".join(status_.full) or "nobody",
        "control entries": status_.control_entries,
        **{f"store: {key}": value for key, value in store.items() if key != "reactions"},
        **{f"problem: {key}": value for key, value in status_.problems.items()},
    }
    out.print(
        table(f"{system.name}: {name}", ["", "now"], [(key, str(value)) for key, value in facts.items()])
    )
    clocks = [(clock.domain, clock.servers, clock.entries) for clock in status_.clocks]
    out.print(table("Clocks", ["domain", "servers", "entries"], clocks))
    links = [
        (
            peer,
            link.state,
            link.unacknowledged_messages,
            link.packets_sent,
            link.packets_received,
            link.last_error or "",
        )
        for peer, link in status_.links.items()
    ]
    out.print(table("Links", ["to", "state", "queue out", "sent", "received", "last problem"], links))
    routes = [(route.to, route.hop, route.domain) for route in status_.routes]
    out.print(table("Routes", ["to", "by way of", "in domain"], routes))
    if status_.held:
        held = [
            (friendly(each.message), f"{each.since_s:.1f}", friendly(", ".join(each.missing)))
            for each in status_.held_first
        ]
        caption = f"{status_.held} in all. a>b:3 is the third message from a to b." if held else None
        out.print(table("Held", ["message", "since (s)", "waits for"], held, caption=caption))


def send(
    description: Description,
    source: Annotated[str, typer.Argument(metavar="FROM", help="The server that sends.")],
    to: Annotated[str, typer.Argument(metavar="TO", help="The server that it is for.")],
    text: Annotated[str | None, typer.Argument(help="What to send, as UTF-8.")] = None,
    file: Annotated[Path | None, typer.Option(help="Send the bytes of a file; - is standard input.")] = None,
    timeout: Annotated[
        float, typer.Option(min=0, help="Wait so many seconds for room.", metavar="SECONDS")
    ] = 20.0,
    as_json: _Json = False,
) -> None:
    """Let one server send a message to another; returns with its id when the message is durable."""
    if (text is None) == (file is None):
        raise ParameterError("TEXT", "give either a text or --file", "Write what to send, or --file PATH")
    system = read_system(description)
    system.server_of(to)
    with Client(system, source) as client:
        id_ = client.send(to, _payload(text, file), timeout_s=timeout)
    if as_json:
        console.print_json({"origin": id_.origin, "number": id_.number, "to": to})
    else:
        console.out.print(shown_id(*id_), markup=False)


def retire(
    description: Description,
    name: Annotated[str, typer.Argument(help="The server that is lost.")],
) -> None:
    """Tell all servers that run here to wait for a lost server no more; what is queued for it is void.

    Messages to it are refused from then on. It may come back: as another life, without its past, where the
    others are.
    """
    from whence.errors import ServerDownError
    from whence.servers.processes import holder_of

    system = read_system(description)
    lost = system.require(name)
    if holder_of(system.lock_of(lost)) is not None:
        raise ServerDownError(
            f"server {lost!r}", "it runs, and is not lost", f"Stop it first: `whence mom down FILE {lost}`"
        )
    told = [
        server
        for server in sorted(system.shape.neighbours(lost))
        if holder_of(system.lock_of(server)) is not None
    ]
    if not told:
        raise ServerDownError(
            f"server {lost!r}", "none of its neighbours runs here", "Start one of them, on its machine"
        )
    void = 0
    for server in told:
        with Client(system, server) as client:
            void += client.status().links[lost].unacknowledged_messages
            client.retire(lost)
    console.out.print(
        f"{system.name}: {lost} is retired; {void} messages that waited for it are void. "
        "If its store is lost, remove the file before it starts again",
        markup=False,
        soft_wrap=True,
    )


def verify(description: Description, as_json: _Json = False) -> None:
    """Judge the traces of a system, also while it runs; exit 0: causal and as promised, 1: not.

    While what was traced is put on the disk, for a moment nobody sends.
    """
    from whence.cli import verify as verifying
    from whence.errors import ConfigError
    from whence.servers.processes import holder_of

    system = read_system(description)
    if system.trace_folder is None:
        raise ConfigError(f"{system.path}: trace", "the system keeps none", "Set trace = true, and apply")
    running = [server for server in system.servers if holder_of(system.lock_of(server)) is not None]
    names = list(system.servers)
    try:
        for server in running:
            with Client(system, server) as client:
                client.hold(names, _STATUS_TIMEOUT_S)
        for server in running:
            with Client(system, server) as client:
                client.flush()
    finally:
        for server in running:
            with Client(system, server) as client:
                client.hold(())
    verifying.command(system.trace_folder, as_json=as_json)


def _payload(text: str | None, file: Path | None) -> bytes:
    import sys

    if text is not None:
        return text.encode("utf-8", "surrogateescape")
    assert file is not None
    return sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()


def tail(
    description: Description,
    name: Annotated[str, typer.Argument(help="The server.")],
    count: Annotated[int | None, typer.Option(min=1, help="End after so many messages.")] = None,
    as_json: _Json = False,
) -> None:
    """Print messages as the server's agent reacts to them, and what it sends in return.

    Where there is no agent, the messages that wait are taken: each is printed once, by one tail.
    """
    import sys

    from whence.errors import ServerDownError

    with Client(read_system(description), name) as client:
        seen = 0
        try:
            for told in client.tail(count):
                _print(told, as_json)
                seen += 1
        except KeyboardInterrupt:
            sys.stderr.write(f"{seen} messages seen; the same command goes on with those that come\n")
        except ServerDownError:
            if count is not None or not seen:
                raise  # else: it was stopped while we looked on, which ends a tail


def _print(told: Told, as_json: bool) -> None:
    import sys

    import msgspec

    if told.missed:
        sys.stderr.write(f"({told.missed} messages missed: this reader is too slow)\n")
    if as_json:
        line: dict[str, Any] = {"origin": told.origin, "number": told.number, **_shown(told.payload)}
        if told.to:
            line["to"] = told.to
        line["outputs"] = [{"to": to, **_shown(payload)} for to, payload in told.outputs]
        sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
    else:
        text = told.payload.decode(errors="replace")
        sent = "".join(f"\n  -> {to}: {payload.decode(errors='replace')}" for to, payload in told.outputs)
        to = f" ({told.to})" if told.to else ""
        sys.stdout.write(f"{shown_id(told.origin, told.number)}{to} {text}{sent}\n")
    sys.stdout.flush()


def _shown(payload: bytes) -> dict[str, str]:
    """As `whence node --json` shows payloads: text where it is text."""
    import base64

    try:
        return {"text": payload.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(payload).decode()}


def gateway(
    description: Description,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where to listen, on this machine.")] = 61613,
    token_file: Annotated[
        Path | None, typer.Option(help="Demand the text of this file as the client's passcode.")
    ] = None,
) -> None:
    """Let programs in any language send and receive over STOMP 1.2, until Ctrl-C or SIGTERM."""
    import asyncio
    import signal

    from whence.servers.gateway import Gateway
    from whence.servers.joining import limits_of

    system = read_system(description)
    token = None if token_file is None else token_file.read_text(encoding="utf-8").strip()

    async def run() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        made = Gateway(system, limits_of(system).max_payload_bytes, token)
        listening = await made.start(port)
        console.err.print(f"{system.name}: STOMP at 127.0.0.1:{listening}; Ctrl-C stops", markup=False)
        await stop.wait()
        await made.close()
        console.err.print(f"{system.name}: STOMP is closed; its servers run on", markup=False)

    asyncio.run(run())


# Dead letters


Failed = Annotated[str, typer.Argument(metavar="SERVER", help="The server whose agent failed.")]
Which = Annotated[str, typer.Argument(metavar="ID", help="ORIGIN:NUMBER as `list` shows it, or all.")]

letters = typer.Typer(
    no_args_is_help=True, help="Dead letters: messages at which a server's agent failed for good."
)


@letters.command("list")
def list_letters(description: Description, server: Failed, as_json: AsJson = False) -> None:
    """Show the dead letters of a server, oldest first."""
    with _client(description, server) as client:
        found = client.dead()
    if as_json:
        console.print_json([_plain(letter) for letter in found])
        return
    rows = [
        (
            shown_id(each.origin, each.number),
            each.to,
            f"{each.since_s:.0f}",
            each.attempts,
            len(each.payload),
            friendly(each.reason),
        )
        for each in found
    ]
    columns = ["message", "for", "since (s)", "attempts", "bytes", "reason"]
    console.out.print(console.table(f"{server}: {len(found)} dead letters", columns, rows))


@letters.command("show")
def show_letter(description: Description, server: Failed, which: Which, as_json: AsJson = False) -> None:
    """Print what a dead letter says."""
    with _client(description, server) as client:
        for letter in _chosen(client, which):
            if as_json:
                console.print_json(_plain(letter))
            else:
                text = letter.payload.decode(errors="replace")
                console.out.print(
                    f"{shown_id(letter.origin, letter.number)} {text}", markup=False, soft_wrap=True
                )


@letters.command("retry")
def retry_letter(description: Description, server: Failed, which: Which) -> None:
    """Let the agent try again, after all messages that wait now."""
    with _client(description, server) as client:
        for letter in _chosen(client, which):
            client.revive(_id(letter))
            console.out.print(
                f"{shown_id(letter.origin, letter.number)} waits for {server}'s agent again", markup=False
            )


@letters.command("drop")
def drop_letter(description: Description, server: Failed, which: Which) -> None:
    """Forget a dead letter."""
    with _client(description, server) as client:
        for letter in _chosen(client, which):
            client.drop(_id(letter))
            console.out.print(f"{shown_id(letter.origin, letter.number)} is forgotten", markup=False)


def _client(description: Path, server: str) -> Client:
    return Client(read_system(description), server)


def _chosen(client: Client, which: str) -> list[DeadShown]:
    found = [
        each
        for each in client.dead()
        if which in ("all", f"{each.origin}:{each.number}", shown_id(each.origin, each.number))
    ]
    if not found and which != "all":
        raise ParameterError(
            f"dead letter {which!r}",
            f"server {client.server!r} has none of that id",
            "Choose one that `whence mom dead list` shows, or all",
        )
    return found


def _id(letter: DeadShown) -> MessageId:
    return MessageId(letter.origin, letter.number)


def _plain(letter: DeadShown) -> dict[str, Any]:
    import base64

    return {
        "origin": letter.origin,
        "number": letter.number,
        "payload_base64": base64.b64encode(letter.payload).decode(),
        "since_s": letter.since_s,
        "attempts": letter.attempts,
        "reason": letter.reason,
        "to": letter.to,
    }


app = typer.Typer(
    no_args_is_help=True, help="Message-oriented middleware over domains of causality (paper 004)."
)
RUN, PLAN = "Run a system", "Plan its domains"
app.command(rich_help_panel=RUN)(up)
app.command(rich_help_panel=RUN)(down)
app.command(rich_help_panel=RUN)(serve)
app.command(rich_help_panel=RUN)(apply)
app.command(rich_help_panel=RUN)(status)
app.command(rich_help_panel=RUN)(send)
app.command(rich_help_panel=RUN)(tail)
app.command(rich_help_panel=RUN)(retire)
app.command(rich_help_panel=RUN)(verify)
app.command(rich_help_panel=RUN)(gateway)
app.add_typer(letters, name="dead", rich_help_panel=RUN)
app.command(rich_help_panel=PLAN)(planning.traffic)
app.command(rich_help_panel=PLAN)(planning.plan)

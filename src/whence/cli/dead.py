"""`whence mom dead`: the messages at which a server's agent failed for good, and what to do with them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from whence.cli import console
from whence.cli.console import AsJson, friendly, shown_id
from whence.core.message import MessageId
from whence.errors import ParameterError
from whence.servers.client import Client
from whence.servers.requests import DeadShown

Description = Annotated[Path, typer.Argument(metavar="SYSTEM.toml", help="The system's description.")]
Server = Annotated[str, typer.Argument(metavar="SERVER", help="The server whose agent failed.")]
Which = Annotated[str, typer.Argument(metavar="ID", help="ORIGIN:NUMBER as `list` shows it, or all.")]

app = typer.Typer(
    no_args_is_help=True, help="Dead letters: messages at which a server's agent failed for good."
)


@app.command("list")
def list_letters(description: Description, server: Server, as_json: AsJson = False) -> None:
    """Show the dead letters of a server, oldest first."""
    with _client(description, server) as client:
        letters = client.dead()
    if as_json:
        console.print_json([_plain(letter) for letter in letters])
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
        for each in letters
    ]
    columns = ["message", "for", "since (s)", "attempts", "bytes", "reason"]
    console.out.print(console.table(f"{server}: {len(letters)} dead letters", columns, rows))


@app.command("show")
def show_letter(description: Description, server: Server, which: Which, as_json: AsJson = False) -> None:
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


@app.command("retry")
def retry_letter(description: Description, server: Server, which: Which) -> None:
    """Let the agent try again, after all messages that wait now."""
    with _client(description, server) as client:
        for letter in _chosen(client, which):
            client.revive(_id(letter))
            console.out.print(
                f"{shown_id(letter.origin, letter.number)} waits for {server}'s agent again", markup=False
            )


@app.command("drop")
def drop_letter(description: Description, server: Server, which: Which) -> None:
    """Forget a dead letter."""
    with _client(description, server) as client:
        for letter in _chosen(client, which):
            client.drop(_id(letter))
            console.out.print(f"{shown_id(letter.origin, letter.number)} is forgotten", markup=False)


def _client(description: Path, server: str) -> Client:
    from whence.servers.system import read_system

    return Client(read_system(description), server)


def _chosen(client: Client, which: str) -> list[DeadShown]:
    letters = client.dead()
    found = [
        each
        for each in letters
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

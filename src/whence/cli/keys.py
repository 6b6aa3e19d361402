"""`whence keys`: a group's authority, and a certificate for each of its nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from whence.cli.console import AsJson

app = typer.Typer(no_args_is_help=True, help="Keys for TLS between the nodes of a group (SECURITY.md).")

Days = Annotated[int, typer.Option(help="How long the nodes' certificates last.", metavar="N")]
Folder = Annotated[Path, typer.Argument(help="The folder that `init` made.", metavar="DIR")]
NODE_DAYS = 365


@app.command()
def init(
    group: Annotated[str, typer.Argument(help="The group's name.")],
    nodes: Annotated[str, typer.Option(help="The nodes' names, with commas between them.", metavar="A,B,C")],
    out: Annotated[
        Path | None, typer.Option(help="Where to put the files [default: keys-GROUP].", metavar="DIR")
    ] = None,
    days: Days = NODE_DAYS,
) -> None:
    """Make an authority for a group, and a certificate with its key for each node.

    Give each node ca.pem, its own .pem and its own .key, and nothing else. Keep ca.key where no node runs:
    with it anybody can be made a member.
    """
    from urllib.parse import quote

    from whence.live.authority import make_group

    folder = out if out is not None else Path(f"keys-{quote(group, safe=' ')}")
    names = [name.strip() for name in nodes.split(",")] if nodes.strip() else []
    _tell(make_group(folder, group, names, days))


@app.command()
def add(
    folder: Folder,
    nodes: Annotated[list[str], typer.Argument(help="The new nodes' names.", metavar="NODE...")],
    days: Days = NODE_DAYS,
) -> None:
    """Make certificates and keys for further nodes, or new ones for nodes whose files were moved away."""
    from whence.live.authority import add_nodes

    _tell(add_nodes(folder, nodes, days))


@app.command()
def show(
    folder: Folder,
    json: AsJson = False,
) -> None:
    """List a folder's certificates: names, validity, fingerprints. Exit code 1 if one of them is no good."""
    from whence.cli import console
    from whence.live import authority

    found = authority.show(folder)
    if json:
        console.print_json([each.document() for each in found])
    else:
        rows = [
            [
                each.file,
                "the authority" if each.node is None else each.node,
                each.group,
                f"{each.until:%Y-%m-%d %H:%M} UTC",
                each.problem or f"{each.days_left} days left",
                "yes" if each.has_key else "no",
                each.fingerprint,
            ]
            for each in found
        ]
        columns = ["file", "node", "group", "until", "state", "key here", "SHA-256"]
        console.out.print(console.table(None, columns, rows))
    if any(each.problem for each in found):
        raise typer.Exit(1)


def _tell(files: list[Path]) -> None:
    from whence.cli import console

    for path in files:
        console.out.print(str(path), markup=False, soft_wrap=True)

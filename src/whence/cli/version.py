"""`whence version`: what is installed here, for a bug report and for the record of a study."""

from __future__ import annotations

from whence.cli.options import AsJson


def command(
    json: AsJson = False,
) -> None:
    """Say which Whence, Python and libraries these are."""
    from whence.cli import console
    from whence.studies.environment import versions

    found = versions()
    if json:
        console.print_json(found)
        return
    for name, number in found.items():
        console.out.print(f"{name:<12}{number or 'not installed'}", markup=False)

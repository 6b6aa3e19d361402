"""The package as a zip, so that executors on other machines run the driver's very code, and how it is found.

Whatever a session runs finds the zip: Spark puts it on the workers' path. A stream is different in two ways,
both of them Spark's. Before a stateful query starts, Spark asks a Python beside the driver about it, and
gives that one nothing that was shipped. And over Spark Connect, the workers of a stream have on their path
`userFiles/whence-HASH.zip`, while the file is in `userFiles/SESSION/`.

So what a stream calls first must not need the package: it is sent as code (`by_value`) and imports the rest
when rows arrive, after `find_shipped`. This module is sent as code too.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
import zipfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

from whence import plugins
from whence.errors import PluginError

# The oldest time that a zip can hold: the archive depends on the files' content alone.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def by_value(module: str) -> None:
    """From now on, send what is defined in that module as code, not by its name."""
    register: Any = cloudpickle.register_pickle_by_value  # it has no type hints
    register(sys.modules[module])


by_value(__name__)


def find_shipped() -> None:
    """Let this process import the package: installed, found by Spark, or beside where Spark looked."""
    if "whence" in sys.modules:
        return
    for entry in map(Path, list(sys.path)):
        if entry.match("whence-*.zip") and not entry.exists():
            # The hash in its name makes any session's copy the right one.
            found = sorted(entry.parent.glob(f"*/{entry.name}"))
            sys.path[1:1] = map(str, found[:1])
    importlib.invalidate_caches()


def package_zip(folder: Path) -> Path:
    """Write the zip of the package `whence` into `folder`.

    Deterministic: equal sources give equal bytes. The name carries the hash of the content, because
    Spark refuses a second file of the same name with other content within one application.
    """
    # A manifest names the version that wrote it, and the version is asked of the metadata.
    name = f"whence-{metadata.version('whence')}.dist-info/METADATA"
    more = {name: (metadata.distribution("whence").read_text("METADATA") or "").encode()}
    return _zip(folder, "whence", Path(__file__).parents[1], more)


def plugin_zips(folder: Path) -> list[Path]:
    """Write the zips of the packages of all plug-ins into `folder`."""
    found = []
    for module in plugins.packages():
        where = module.__file__
        if where is None:
            fix = "Give it an __init__.py, or install it on the workers"
            raise PluginError(f"plug-in {module.__name__!r}", "it is a folder without a file to ship", fix)
        path = Path(where)
        is_package = path.name == "__init__.py"
        found.append(_zip(folder, module.__name__, path.parent if is_package else path, {}))
    return found


def _zip(folder: Path, name: str, source: Path, more: Mapping[str, bytes]) -> Path:
    temporary = folder / f"{name}.zip.tmp"
    with zipfile.ZipFile(temporary, "w") as archive:
        if source.is_file():
            _add(archive, source.name, source.read_bytes())
        for path in sorted(source.rglob("*")):
            if "__pycache__" not in path.parts and path.is_file():
                _add(archive, f"{name}/{path.relative_to(source).as_posix()}", path.read_bytes())
        for entry, content in more.items():
            _add(archive, entry, content)
    digest = hashlib.sha256(temporary.read_bytes()).hexdigest()[:16]
    return temporary.replace(folder / f"{name}-{digest}.zip")


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    archive.writestr(entry, content)

"""Put the package into a zip, so that executors on other machines run the driver's very code."""

from __future__ import annotations

import hashlib
import zipfile
from importlib import metadata
from pathlib import Path

import whence

# The oldest time that a zip can hold: the archive depends on the files' content alone.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def package_zip(folder: Path) -> Path:
    """Write the zip of the package `whence` into `folder`.

    Deterministic: equal sources give equal bytes. The name carries the hash of the content, because
    Spark refuses a second file of the same name with other content within one application.
    """
    source = Path(whence.__file__).parent
    temporary = folder / "whence.zip.tmp"
    with zipfile.ZipFile(temporary, "w") as archive:
        for path in sorted(source.rglob("*")):
            if "__pycache__" not in path.parts and path.is_file():
                _add(archive, f"whence/{path.relative_to(source).as_posix()}", path.read_bytes())
        # A manifest names the version that wrote it, and the version is asked of the metadata.
        name = f"whence-{metadata.version('whence')}.dist-info/METADATA"
        _add(archive, name, (metadata.distribution("whence").read_text("METADATA") or "").encode())
    digest = hashlib.sha256(temporary.read_bytes()).hexdigest()[:16]
    return temporary.replace(folder / f"whence-{digest}.zip")


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    archive.writestr(entry, content)

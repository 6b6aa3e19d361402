"""Traces as version 1 of the format had them: a row is a segment, its events are lists."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from whence.trace.columns import FLAT_SCHEMA, PACKED_SCHEMA, packed_of
from whence.trace.reader import opened_part
from whence.trace.schema import MANIFEST_SUFFIX

DICTIONARIES = ["run", "node", "names.list.element", "kind.list.element", "detail.list.element"]


def rewrite_in_version_1(folder: Path) -> None:
    """Put every part and manifest of a folder into the old form; the trace hash stays."""
    for path in sorted(folder.rglob(f"*{MANIFEST_SUFFIX}")):
        manifest: dict[str, Any] = json.loads(path.read_text())
        manifest["version"] = 1
        for part in manifest["parts"]:
            file = path.parent / part["file"]
            with opened_part(file) as stored:
                batches = [
                    packed_of(manifest["run"], stored.read(group, FLAT_SCHEMA.names))
                    for group in range(stored.groups)
                ]
            table = pa.Table.from_batches(batches, schema=PACKED_SCHEMA)
            pq.write_table(table, file, compression="zstd", use_dictionary=DICTIONARIES)
            raw = file.read_bytes()
            part |= {"rows": len(table), "size_bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
        path.write_text(json.dumps(manifest))

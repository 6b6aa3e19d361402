"""Where the project is at home, as the metadata of a wheel: the place that builds it knows.

`WHENCE_HOME=https://forge.example/owner/whence`, or in a workflow of GitHub what it sets by itself. With a
home the wheel has its addresses, and the links of the README lead there. Without one there are no addresses,
and a link to a file becomes its words and the file's name, which the source archive has: none is invented.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#)([^)]+)\)")


def home(environment: Mapping[str, str]) -> str:
    """The address of the repository; "" where it is not known."""
    server, repository = (environment.get(f"GITHUB_{word}", "") for word in ("SERVER_URL", "REPOSITORY"))
    given = environment.get("WHENCE_HOME", f"{server}/{repository}" if server and repository else "")
    return given.rstrip("/")


def urls(base: str) -> dict[str, str]:
    """What an index shows beside the README."""
    if not base:
        return {}
    return {
        "Homepage": base,
        "Source": base,
        "Documentation": f"{base}/blob/main/docs/index.md",
        "Changelog": f"{base}/blob/main/CHANGELOG.md",
        "Issues": f"{base}/issues",
    }


def standing_alone(readme: str, base: str) -> str:
    """The README where there are no files beside it."""

    def link(found: re.Match[str]) -> str:
        is_picture, words, target = found.groups()
        if base:
            return f"{is_picture}[{words}]({base}/{'raw' if is_picture else 'blob'}/main/{target})"
        return f"*{words}*" if is_picture else f"{words} (`{target}`)"

    return _LINK.sub(link, readme)


class HomeHook(MetadataHookInterface):
    """Fills in `readme` and `urls`, which pyproject.toml calls dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called by hatchling."""
        base = home(os.environ)
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": standing_alone(text, base)}
        metadata["urls"] = urls(base)

"""The report in a real browser: no error on its console, everything drawn. Skipped where there is none."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from support.browser import BROWSER, FLAGS
from support.made_up_study import made_up_result
from whence.report import html

QUIET = ("--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr", "--virtual-time-budget=2000")


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here (Debian: apt-get install chromium)")
def test_the_page_draws_without_complaint(tmp_path: Path) -> None:
    page = html.write(made_up_result(), tmp_path / "report.html", date="2024-05-01")
    # A page cannot measure itself without a script, and the report has none: add one to a copy.
    probe = """<script>
      for (const drawing of document.querySelectorAll("svg")) {
        const box = drawing.getBoundingClientRect();
        console.log("PROBE svg " + Math.round(box.width) + "x" + Math.round(box.height));
      }
      console.log("PROBE overflow " + (document.documentElement.scrollWidth > innerWidth));
      console.log("PROBE images " + [...document.images].filter(one => !one.naturalWidth).length);
    </script></body>"""
    probed = tmp_path / "probed.html"
    probed.write_text(page.read_text().replace("</body>", probe))
    profile = tmp_path / "profile"
    done = subprocess.run(
        [
            str(BROWSER),
            *FLAGS,
            *QUIET,
            f"--user-data-dir={profile}",
            "--window-size=1280,900",
            "--dump-dom",
            probed.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert "What causal order costs, and what it saves" in done.stdout
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert [line for line in console if "PROBE" not in line] == []
    sizes = [tuple(map(int, found)) for found in re.findall(r"PROBE svg (\d+)x(\d+)", done.stderr)]
    assert len(sizes) == 3
    assert all(width > 300 and height > 100 for width, height in sizes)
    assert "PROBE overflow false" in done.stderr
    assert "PROBE images 0" in done.stderr

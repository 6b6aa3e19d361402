"""The page of a run that is still going on, served on this machine's loopback.

The page asks once a second whether there is more; each time the nodes are told that a page watches, so
that they write out what they have (`whence.live.watched`). Parts of nodes come at different moments: a
message may be seen delivered before its broadcast. So `created` and `malformed` are not judged while a run
goes on; everything else that is found is certain.
"""

from __future__ import annotations

import hashlib
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import SplitResult, parse_qs, urlsplit

import msgspec
import numpy as np

from whence.errors import MisuseError, TraceError, WhenceError
from whence.live.watched import touch
from whence.trace.reader import Trace, load_manifest, open_trace
from whence.trace.schema import MANIFEST_SUFFIX
from whence.verify.report import RunReport, demanded_kinds
from whence.verify.run import verify_trace
from whence.view.clocks import with_corrections
from whence.view.page import page_of, parts_of
from whence.view.scene import Scene
from whence.view.traces import TRACE_KINDS, only_run, scene_of_trace

_UNSETTLED = ("created", "malformed")


class LiveTrace:
    """A trace folder that grows; its scene is made anew when there is more."""

    def __init__(self, folder: Path, run: str | None, *, events_max: int) -> None:
        if not folder.is_dir():
            raise MisuseError(str(folder), "there is no such folder", "Give the folder that nodes record to")
        self.folder = folder
        self._run = run
        self._events_max = events_max
        self._lock = threading.Lock()
        self._state = ""
        self._scene = _empty(folder)

    def latest(self) -> tuple[str, Scene]:
        """The scene of what is there, and a name for this state of it."""
        touch(self.folder)
        with self._lock:
            try:
                state = _state_of(self.folder)
                if state != self._state and state:
                    self._scene = self._read()
                    self._state = state
            except TraceError:
                pass  # a node is just writing: what was read before is shown until the next time
            return self._state, self._scene

    def _read(self) -> Scene:
        trace = open_trace(self.folder, hashes=False)
        run = only_run(trace, self._run)
        events = sum(manifest.events for manifest in trace.of_run(run))
        if events > self._events_max:
            raise MisuseError(
                f"run {run!r}", f"it has grown to {events:,} events", "Show a part of it: --around 1"
            )
        scene = scene_of_trace(Trace(trace.path, trace.sources, []), run, _so_far(trace, run))
        return with_corrections(scene)


def _so_far(trace: Trace, run: str) -> RunReport:
    """The verdict on a run that goes on, without what later parts may still explain."""
    report = verify_trace(trace, run=run, causal=True, complete=False)[0]
    counts = msgspec.structs.replace(report.counts, **dict.fromkeys(_UNSETTLED, 0))
    findings = [finding for finding in report.findings if finding.kind not in _UNSETTLED]
    ok = not any(getattr(counts, kind) for kind in demanded_kinds(report.promises))
    return msgspec.structs.replace(report, ok=ok, counts=counts, findings=findings)


def _state_of(folder: Path) -> str:
    found = sorted(folder.glob(f"*{MANIFEST_SUFFIX}"))
    digest = hashlib.sha256()
    for path in found:
        digest.update(f"{path.name} {load_manifest(path).trace_hash}\n".encode())
    return digest.hexdigest()[:16] if found else ""


def _empty(folder: Path) -> Scene:
    none = np.zeros(0, dtype=np.int64)
    return Scene(
        title=folder.name, verdict="nothing recorded yet", tone="none", about={"trace": str(folder)},
        procs=[], lanes=[], lane_proc=[], starts=np.zeros(1, dtype=np.int64), kinds=TRACE_KINDS, kind=none,
        time=None, unit_ns=1000, msgs=[], msg=none, begin=none, details=[], detail=none, edge_from=none,
        edge_to=none, edge_source=none,
    )  # fmt: skip


class LiveServer(ThreadingHTTPServer):
    """Serves the page at `/` and what is new at `/data`, to this machine alone."""

    daemon_threads = True

    def __init__(self, trace: LiveTrace, port: int, version: str) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.trace = trace
        self.version = version

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://127.0.0.1:{self.server_address[1]}/"


class _Handler(BaseHTTPRequestHandler):
    server: LiveServer

    def do_GET(self) -> None:
        """The page, or what is new since the state that it has."""
        # Only under its own name: a page from elsewhere cannot pose as this host and read the trace.
        port = self.server.server_address[1]
        if self.headers.get("Host") not in (f"127.0.0.1:{port}", f"localhost:{port}"):
            self._reply(HTTPStatus.FORBIDDEN, b"", "text/plain")
            return
        try:
            self._answer(urlsplit(self.path))
        except WhenceError as problem:  # the run has grown too large, or holds several
            self._reply(HTTPStatus.SERVICE_UNAVAILABLE, str(problem).encode(), "text/plain; charset=utf-8")

    def _answer(self, asked: SplitResult) -> None:
        if asked.path == "/":
            state, scene = self.server.trace.latest()
            page = page_of(scene, version=self.server.version, live=state or "-")
            self._reply(HTTPStatus.OK, page.encode(), "text/html; charset=utf-8")
        elif asked.path == "/data":
            state, scene = self.server.trace.latest()
            if parse_qs(asked.query).get("since") == [state or "-"]:
                self._reply(HTTPStatus.NO_CONTENT, b"", "application/json")
                return
            head, data = parts_of(scene, live=state or "-")
            self._reply(HTTPStatus.OK, msgspec.json.encode({"head": head, "data": data}), "application/json")
        else:
            self._reply(HTTPStatus.NOT_FOUND, b"", "text/plain")

    def _reply(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Say nothing: the page asks once a second."""

"""One tree of typed errors. Each names the thing, the reason and the fix.

    WhenceError
      MisuseError        the caller broke a rule of the API
      PeerError          another node sent what it must not send
      DataError          a file or description is not what it should be
      PlatformError      the machine lacks something (Java, an extra, a port, memory, a disk)
      AgentError         the application's agent failed
      NoRoomError        a queue is full, and the caller would not wait for it
      InvariantError     a bug in Whence itself: please report it

A command prints these without a traceback; anything else is a bug of ours.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class WhenceError(Exception):
    """Base of every error that Whence raises on purpose."""

    def __init__(self, what: str, reason: str, fix: str) -> None:
        super().__init__(what, reason, fix)
        self.what = what
        self.reason = reason
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.what}: {self.reason}. {self.fix}"


class MisuseError(WhenceError):
    """The caller broke a rule of the API."""


class UnknownProtocolError(MisuseError):
    """No protocol of that name is registered."""


class ParameterError(MisuseError):
    """A protocol parameter is unknown or out of range."""


class GroupClosedError(MisuseError):
    """The group was left, or its node has failed."""


class PayloadTooLargeError(MisuseError):
    """A payload is larger than the group's limit."""


class KeysRequiredError(MisuseError):
    """An address can be reached from other machines, and neither keys nor plain text were asked for."""


class PeerError(WhenceError):
    """Another node sent what it must not send."""


class FrameError(PeerError):
    """A frame cannot be decoded."""


class FrameTooLargeError(FrameError):
    """A frame announces more bytes than the limit."""


class VersionError(PeerError):
    """A peer speaks another version of the wire format."""


class HandshakeError(PeerError):
    """A peer belongs to another group, or claims an identity that it cannot have."""


class CertificateError(HandshakeError):
    """A peer shows no certificate, a foreign or expired one, or that of another node."""


class ReplayError(HandshakeError):
    """A peer says what was said on another connection: it is a recording."""


class PeerTooSlowError(PeerError):
    """A peer did not take its messages in time, and its queue reached the hard limit."""


class NotCopiedError(PeerError):
    """Fewer peers than asked for have said in time that they have a message."""


class NoReplyError(PeerError):
    """A question was not answered in time."""


class NotAdmittedError(PeerError):
    """No member has admitted this node in time: a message waits in its outbox."""


class DataError(WhenceError):
    """A file or description is not what it should be."""


class TraceError(DataError):
    """A trace is corrupt, truncated, foreign or inconsistent."""


class ImportFormatError(DataError):
    """A foreign log cannot be read in the format that was asked for."""


class ScenarioError(DataError):
    """A scenario is malformed or impossible."""


class ContactPlanError(DataError):
    """A contact plan is malformed or impossible."""


class ConfigError(DataError):
    """A configuration file is malformed or contradicts itself."""


class KeysError(DataError):
    """A key or certificate is missing, unreadable, expired, or belongs to another node."""


class DomainGraphError(DataError):
    """A description of domains is malformed, disconnected or cyclic."""


class PluginError(DataError):
    """A plug-in cannot be imported, or declares what it must not."""


class CodecError(DataError):
    """A payload is not what the codec of its group makes, or a value cannot be encoded."""


class RequestError(DataError):
    """A request to a server's administration is malformed."""


class SchemaError(DataError):
    """A table lacks a column, or has it with another type."""


class PlatformError(WhenceError):
    """The machine lacks something that the work needs."""


class ServerDownError(PlatformError):
    """A server of a system does not run, or does not reply."""


class ExtraMissingError(PlatformError):
    """An optional dependency is not installed."""


class JavaMissingError(PlatformError):
    """No usable Java was found, and Spark needs one."""


class StoreError(PlatformError):
    """A durable store cannot be opened, read or written."""


class DiskError(PlatformError):
    """A file cannot be written: the disk is full, or gone."""


class NoRoomError(WhenceError):
    """A message was not accepted: a queue is full, and the caller would not wait (any longer)."""


class AgentError(WhenceError):
    """An agent failed to react to a message, which stays in its queue."""


class EmulationError(WhenceError):
    """An emulation could not go on."""


class InvariantError(WhenceError):
    """A bug in Whence: an invariant of a protocol does not hold."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(what, reason, "This is a bug in Whence; please report it with the trace")


def missing_extra(feature: str, package: str, extra: str) -> ExtraMissingError:
    """The error for a feature whose optional dependency is not installed."""
    return ExtraMissingError(
        feature,
        f"the package {package!r} is not installed",
        f"Install it with: pip install 'whence[{extra}]'",
    )


# Errors of a machine that cannot write any more, wherever it was writing.
DISK_ERRNOS = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO))


def disk_problem(error: OSError, what: str | None = None) -> DiskError:
    """The typed error for a file that cannot be written."""
    name = what or (str(error.filename) if error.filename is not None else "a file")
    no_folder = error.errno in (errno.ENOENT, errno.ENOTDIR)
    fix = "Make its folder" if no_folder else "Make room on the disk"
    if isinstance(error, PermissionError):
        fix = "Take a folder that you may write to"
    return DiskError(
        name,
        f"it cannot be written ({error.strerror or error})",
        f"{fix} or give a path elsewhere, and run it again",
    )


@contextmanager
def writing(path: Path | str) -> Iterator[None]:
    """Turn what the machine says while a file is being written into a `DiskError` that names it."""
    try:
        yield
    except OSError as error:
        raise disk_problem(error, str(path)) from error

"""Children of a process: forked, heard, ended. Each trial runs in a process that has no other children."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAD = """
import os, signal, socket, sys, time
from whence.servers.processes import Ended, Lifeline, Processes, Said, Signalled
front, end = os.pipe()
processes = Processes(front, [signal.SIGTERM])

def until(kind, count=1):
    happened = []
    while sum(isinstance(each, kind) for each in happened) < count:
        found = processes.wait(20)
        assert found, happened
        happened += found
    return happened

def leashed(line):  # what every child must do: end with its line
    while line.recv(100):
        pass
    return 0
"""


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", HEAD + program], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_all_that_a_child_says_is_heard_before_its_end() -> None:
    program = """
def body(line):
    line.sendall(b"one\\ntwo\\n" + b"x" * 100_000 + b"\\nhalf")
    return 7
process = processes.fork("a", body)
happened = until(Ended)
assert [each.line[:3] for each in happened[:-1]] == [b"one", b"two", b"xxx"], happened
assert happened[-1] == Ended(process, 7) and not processes.running
"""
    run(program)


def test_a_child_hears_what_it_is_asked() -> None:
    program = """
def body(line):
    line.sendall(line.recv(100).upper())
    return 0
process = processes.fork("a", body)
process.ask(b"well?")
print(until(Said)[0].line)
time.sleep(0.2)
process.ask(b"still there?")  # it is not, and that is told when it is waited for
assert until(Ended) == [Ended(process, 0)]
"""
    assert run(program) == "b'WELL?'\n"


def test_a_child_that_fails_says_why_and_never_runs_on_as_its_parent() -> None:
    program = """
def body(line):
    os.dup2(1, 2)
    raise ValueError("as planned")
try:
    processes.fork("a", body)
except ValueError:
    print("the child came back")
print(until(Ended)[-1].code)
"""
    out = run(program)
    assert "ValueError: as planned" in out
    assert out.endswith("\n70\n")
    assert "came back" not in out


def test_no_child_keeps_the_line_of_another_one() -> None:
    """Else a parent's death would not end those whose lines their siblings hold."""
    program = """
if os.fork() == 0:
    for name in "abc":
        print(processes.fork(name, leashed).pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
os.wait()
"""
    done = subprocess.run(
        [sys.executable, "-c", HEAD + program], capture_output=True, text=True, check=True, timeout=20
    )
    # The children hold standard output: that `run` has returned says that all of them have ended.
    assert len(done.stdout.split()) == 3


def test_signals_and_the_lifeline_come_in_turn() -> None:
    program = """
os.kill(os.getpid(), signal.SIGTERM)
assert until(Signalled) == [Signalled(signal.SIGTERM)]
os.write(end, b"d")
assert until(Lifeline) == [Lifeline(b"d")]
os.close(end)
assert processes.wait(0.1) == []  # it was told to live without
"""
    run(program)


def test_the_end_of_the_lifeline_is_heard() -> None:
    run("os.close(end)\nassert until(Lifeline) == [Lifeline(b'')]")


def test_children_are_stopped_or_killed() -> None:
    program = """
def stubborn(line):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    line.sendall(b"deaf\\n")
    time.sleep(60)
def patient(line):
    line.sendall(b"here\\n")
    time.sleep(60)
one, other = processes.fork("one", stubborn), processes.fork("other", patient)
until(Said, 2)
for each in (one, other):
    processes.send_signal(each, signal.SIGTERM)
assert until(Ended)[-1] == Ended(other, -signal.SIGTERM)
processes.end([one, other])
assert not processes.running
processes.send_signal(one, signal.SIGKILL)  # not to whom the kernel has given its number since
assert not any(isinstance(each, Ended) for each in processes.wait(0.1))
"""
    run(program)


@pytest.mark.parametrize("holds", [True, False])
def test_a_death_is_seen_though_a_grandchild_holds_the_line(holds: bool) -> None:
    program = f"""
hold, let_go = os.pipe()
def body(line):
    if {holds} and os.fork() == 0:
        os.close(let_go)
        os.read(hold, 1)  # until the program has seen the death, or has ended
        os._exit(0)
    return 5
processes.fork("a", body)
assert until(Ended)[-1].code == 5
"""
    run(program)

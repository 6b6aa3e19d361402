"""A search that is stopped goes on where it was, also after kill -9; states on disk are the same states."""

from __future__ import annotations

import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from whence.errors import MisuseError
from whence.explore.search import Options, explore
from whence.explore.snapshot import FILE, source_of
from whence.explore.world import FaultBudget, Line, World
from whence.protocols.baselines.vector import Vector

SAYS = [Line(node=f"n{at}") for at in range(3)]
WORLDS = [
    World(protocol="vector", say=SAYS),  # renamed and reduced
    World(protocol="vcube", links="any", say=SAYS),  # it is found to treat names differently on the way
    World(
        protocol="barrier",
        nodes=2,
        say=[Line(node=f"n{at}", lifetime_us=10) for at in range(2)],
        budget=FaultBudget(ticks=1, cuts=1, amnesias=1),
    ),
    World(protocol="prc", say=SAYS[:2]),
]
# Explores the world of its arguments, saves at every level, and says how deep it is.
CHILD = """
import sys
from pathlib import Path
from whence.explore.search import Options, explore
from whence.explore.world import load
said = lambda now: print(now.depth, flush=True)
options = Options(folder=Path(sys.argv[2]), save_every_s=0.0, progress=said)
explore(load(Path(sys.argv[1])), options)
"""


class First(Vector):
    """A core of one's own."""


class Second(Vector):
    """Another one."""


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.protocol)
def test_a_search_in_three_parts_is_the_search(world: World, tmp_path: Path) -> None:
    whole = explore(world)
    for depth_max in (3, 6):
        part = explore(world, Options(folder=tmp_path, save_every_s=0.0, depth_max=depth_max))
        assert not part.complete
        assert (tmp_path / FILE).exists()
    again = explore(world, Options(folder=tmp_path, save_every_s=0.0))
    assert again._replace(seconds=0.0) == whole._replace(seconds=0.0)
    assert not list(tmp_path.iterdir())


def test_states_may_be_kept_whole(tmp_path: Path) -> None:
    whole = explore(WORLDS[0])
    exact = explore(WORLDS[0], Options(exact=True, folder=tmp_path))
    assert exact.missed_chance == 0.0
    assert whole.missed_chance > 0.0
    assert exact._replace(seconds=0.0, missed_chance=0.0) == whole._replace(seconds=0.0, missed_chance=0.0)


def test_a_folder_belongs_to_one_search(tmp_path: Path) -> None:
    explore(WORLDS[0], Options(folder=tmp_path, save_every_s=0.0, depth_max=3))
    with pytest.raises(MisuseError, match="another search"):
        explore(WORLDS[1], Options(folder=tmp_path))
    with pytest.raises(MisuseError, match="another search"):
        explore(WORLDS[0], Options(folder=tmp_path, order=False))
    (tmp_path / FILE).write_bytes(b"no snapshot")
    with pytest.raises(MisuseError, match="Give another folder"):
        explore(WORLDS[0], Options(folder=tmp_path))


def test_a_folder_belongs_to_one_class_of_cores(tmp_path: Path) -> None:
    """Both are in this module: a stranger's core that was changed is another one, too."""
    world, options = World(protocol="vector", say=SAYS), Options(folder=tmp_path, save_every_s=0.0)
    explore(world, options._replace(depth_max=3), make=First)
    with pytest.raises(MisuseError, match="other code"):
        explore(world, options, make=Second)
    assert explore(world, options, make=First).complete


def test_a_core_that_was_changed_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "stranger_core.py"
    body = "from whence.protocols.baselines.vector import Vector\nclass Own(Vector):\n    x = {}\n"
    path.write_text(body.format(1))
    monkeypatch.syspath_prepend(tmp_path)
    own = import_module("stranger_core").Own
    before = source_of(own("n0", ("n0", "n1")))
    assert before == source_of(own("n0", ("n0", "n1")))
    path.write_text(body.format(2))
    assert before != source_of(own("n0", ("n0", "n1")))


def test_a_killed_search_goes_on(tmp_path: Path) -> None:
    path, folder = tmp_path / "world.toml", tmp_path / "folder"
    path.write_text('protocol = "link_memory"\n' + "".join(f'[[say]]\nnode = "n{at}"\n' for at in range(3)))
    world = World(protocol="link_memory", say=SAYS)
    whole = explore(world)
    command = [sys.executable, "-c", CHILD, str(path), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if int(line) == 7:
                child.send_signal(signal.SIGKILL)
                break
    told: list[int] = []
    again = explore(world, Options(folder=folder, progress=lambda now: told.append(now.depth)))
    assert told[0] > 0
    assert again._replace(seconds=0.0) == whole._replace(seconds=0.0)

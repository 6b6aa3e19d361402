"""Scenarios: what is read, what is refused and in which words, and that nothing is left undocumented."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.running import simulate
from support.simulating import random_scenario
from whence.errors import ParameterError, ScenarioError, UnknownProtocolError, WhenceError
from whence.sim import model
from whence.sim.distributions import Constant, Delay
from whence.sim.files import change, checked, dumps, from_dict, load, run_id, to_dict
from whence.sim.model import Full, Link, Periodic, Scenario, Stop, node_names

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples" / "scenarios").glob("*.toml"))

SMALL: dict[str, Any] = {
    "nodes": 4,
    "protocol": "vector",
    "workloads": [{"kind": "periodic", "interval_us": 1_000}],
    "stop": {"duration_us": 10_000},
}


def changed(*assignments: str) -> dict[str, Any]:
    data = deepcopy(SMALL)
    for assignment in assignments:
        change(data, assignment)
    return data


def test_defaults_are_filled_in() -> None:
    scenario = from_dict(SMALL)
    assert scenario.topology == Full()
    assert scenario.link == Link(delay=Constant(value_us=1_000))
    assert scenario.workloads == [Periodic(interval_us=1_000)]
    assert scenario.stop == Stop(duration_us=10_000)
    assert scenario.seed == 1
    plain = to_dict(scenario)
    assert plain["protocol"] == "vector"
    assert plain["params"] == {}
    assert plain["link"]["delay"] == {"kind": "constant", "value_us": 1_000}
    assert from_dict(plain) == scenario


def test_node_names_sort_as_numbers() -> None:
    assert node_names(1) == ["n0"]
    assert node_names(10)[-1] == "n9"
    assert node_names(11)[:2] == ["n00", "n01"]
    assert node_names(1_001) == sorted(node_names(1_001))


def test_run_id_names_every_parameter() -> None:
    scenario = from_dict(SMALL)
    assert run_id(scenario) == "5894b282babc38ee"  # a new field does not change it: only what is given counts
    others = [changed("seed=2"), changed("link.loss=0.1"), changed("name='x'"), changed("params.relay=false")]
    assert len({run_id(from_dict(data)) for data in [SMALL, *others]}) == 5


# Files


@pytest.mark.parametrize("seed", range(60))
def test_a_scenario_survives_toml(seed: int, tmp_path: Path) -> None:
    scenario = random_scenario(seed)
    path = tmp_path / "scenario.toml"
    path.write_text(dumps(scenario), encoding="utf-8")
    assert load(path) == scenario


def test_strings_survive_toml(tmp_path: Path) -> None:
    scenario = from_dict({**SMALL, "name": 'quote " back \\ line\nbreak tab\t ünï\x7f'})
    path = tmp_path / "scenario.toml"
    path.write_text(dumps(scenario), encoding="utf-8")
    assert load(path).name == scenario.name


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_commented_and_run(path: Path) -> None:
    assert path.read_text().startswith("# ")
    shorter = {
        "bus-day": ["stop.duration_us=1_200_000_000"],
        "heavy-tail": ["stop.duration_us=200_000"],
        "prc-hour": ["nodes=12", "stop.duration_us=125_000_000"],
    }
    result = simulate(load(path, shorter.get(path.stem, [])), check=True)
    assert result.broadcasts > 0


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 3


def test_toml_errors_name_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "broken.toml"
    path.write_text("nodes = 3\nprotocol = \n")
    with pytest.raises(ScenarioError) as caught:
        load(path)
    assert "broken.toml" in caught.value.what
    assert "line 2" in caught.value.reason


def test_unreadable_files_are_scenario_errors(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="No such file"):
        load(tmp_path / "absent.toml")
    with pytest.raises(ScenarioError, match="directory"):
        load(tmp_path)
    path = tmp_path / "latin.toml"
    path.write_bytes(b'name = "\xe9"')
    with pytest.raises(ScenarioError, match="UTF-8"):
        load(path)


def test_load_names_file_and_field(tmp_path: Path) -> None:
    path = tmp_path / "impossible.toml"
    path.write_text(dumps(from_dict(SMALL)).replace("nodes = 4", "nodes = 0"))
    with pytest.raises(ScenarioError) as caught:
        load(path)
    assert "impossible.toml" in caught.value.what
    assert "'nodes'" in caught.value.what


# Assignments


def test_assignments_change_tables_lists_and_whole_values(tmp_path: Path) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(dumps(from_dict(SMALL)))
    scenario = load(
        path,
        [
            "seed=9",
            "protocol=fifo",
            "workloads.0.interval_us=77",
            'link.delay={kind="uniform", low_us=1, high_us=5}',
            "record.level=deliveries",
        ],
    )
    assert scenario.seed == 9
    assert scenario.protocol == "fifo"
    assert scenario.workloads == [Periodic(interval_us=77)]
    assert scenario.record.level == "deliveries"


@pytest.mark.parametrize("text", ["seed", "=1", "a..b=1", "workloads.7.count=1", "workloads.x=1", "seed.x=1"])
def test_bad_assignments_are_refused(text: str) -> None:
    data = to_dict(from_dict(SMALL))
    with pytest.raises(ScenarioError, match="assignment"):
        change(data, text)


# What is refused: assignments on SMALL, the field that the error names, a word of the reason

REFUSED: list[tuple[list[str], str, str]] = [
    # types and ranges
    (["nodes=0"], "nodes", ">= 1"),
    (["nodes=2.5"], "nodes", "float"),
    (["seed=-1"], "seed", ">= 0"),
    (["colour=1"], "colour", "no such field"),
    (["link.los=0.1"], "link.los", "no such field"),
    (["link.loss=1.5"], "link.loss", "<= 1.0"),
    (["link.duplicate=-0.1"], "link.duplicate", ">= 0.0"),
    (["link.duplicate=nan"], "link.duplicate", ""),
    (["link.service_us=-1"], "link.service_us", ">= 0"),
    (["link.retransmit_us=0"], "link.retransmit_us", ">= 1"),
    (["link.bandwidth_bytes_per_s=0"], "link.bandwidth_bytes_per_s", ">= 1"),
    (["stop={}"], "stop", "missing required field"),
    (["record.level=some"], "record.level", "some"),
    # distributions
    (['link.delay={kind="gaussian", mean_us=1}'], "link.delay.kind", "gaussian"),
    (['link.delay={kind="uniform", low_us=2, high_us=1}'], "link.delay.high_us", "below low_us"),
    (['link.delay={kind="pareto", min_us=9, max_us=1}'], "link.delay.max_us", "below min_us"),
    (['link.delay={kind="pareto", min_us=9, shape=inf}'], "link.delay.shape", ""),
    (['link.delay={kind="normal", mean_us=-5, deviation_us=1}'], "link.delay.mean_us", ">= 0"),
    # topology
    (['topology={kind="random", degree=4}'], "topology.degree", "at most 3"),
    (["nodes=5", 'topology={kind="random", degree=3}'], "topology.degree", "odd"),
    (['topology={kind="random", degree=1}'], "topology.degree", "connected"),
    (['topology={kind="grid", columns=5}'], "topology.columns", "do not fill"),
    (['topology={kind="star"}'], "topology.kind", "star"),
    (["nodes=3000"], "topology", "links"),
    (["nodes=99_999", 'topology={kind="random", degree=50}'], "topology.degree", "links"),
    # links
    (["link.loss=1.0"], "link.loss", "next to nothing"),
    (["link.loss=1.0", "link.retransmit_us=5"], "link.loss", "next to nothing"),
    (["overrides=[{loss=1.0}]"], "overrides[0].loss", "next to nothing"),
    (["overrides=[{from_nodes='n0'}]"], "overrides[0]", "changes nothing"),
    (["overrides=[{from_nodes='n9', loss=0.1}]"], "overrides[0].from_nodes", "no node 'n9'"),
    (
        ["topology={kind='ring'}", "overrides=[{from_nodes='n0', to_nodes='n2', fifo=true}]"],
        "overrides[0]",
        "no link",
    ),
    # workloads
    (["workloads=[]"], "workloads", "nobody broadcasts"),
    (["workloads=[{kind='replies', probability=0.5}]"], "workloads", "reply to"),
    (["workloads.0.senders=[]"], "workloads[0].senders", "no node"),
    (["workloads.0.senders=0"], "workloads[0].senders", "0 nodes"),
    (["workloads.0.senders=5"], "workloads[0].senders", "5 nodes"),
    (["workloads.0.senders=['n0', 'n0']"], "workloads[0].senders", "twice"),
    (["workloads.0.senders=bob"], "workloads[0].senders", "no node 'bob'"),
    (["workloads.0.interval_us=0"], "workloads[0].interval_us", ">= 1"),
    (["workloads.0.jitter_us=1001"], "workloads[0].jitter_us", "above the interval"),
    (["workloads.0.start_us=10_000"], "workloads[0].start_us", "not before the end"),
    (["workloads.0.start_us=500", "workloads.0.stop_us=500"], "workloads[0].stop_us", "not after"),
    (["workloads.0={kind='burst', size=9, gap_us=200, interval_us=1000}"], "workloads[0].size", "outlast"),
    (["workloads.0.kind=steady"], "workloads[0].kind", "steady"),
    (
        ["workloads=[{kind='poisson', interval_us=1}, {kind='replies', probability=0}]"],
        "workloads[1].probability",
        "nobody",
    ),
    (
        ["workloads=[{kind='poisson', interval_us=1}, {kind='replies', probability=1, depth=20}]"],
        "workloads[1].depth",
        "replies",
    ),
    # faults
    (["faults=[{kind='partition', start_us=5, stop_us=5}]"], "faults[0].stop_us", "not after"),
    (["faults=[{kind='partition', start_us=5, groups=[['n0'],['n0']]}]"], "faults[0].groups", "two groups"),
    (["faults=[{kind='partition', start_us=5, groups=[['n0'],['n7']]}]"], "faults[0].groups[1]", "no node"),
    (
        ["faults=[{kind='partition', start_us=5, groups=[['n0','n1','n2','n3']]}]"],
        "faults[0].groups",
        "nobody",
    ),
    (["faults=[{kind='partition', start_us=5, groups=[]}]"], "faults[0].groups", "nobody"),
    (["faults=[{kind='partition', start_us=5, parts=5}]"], "faults[0].parts", "5 parts"),
    (["faults=[{kind='crash', nodes='n8', at_us=5}]"], "faults[0].nodes", "no node"),
    (["faults=[{kind='crash', nodes='n1', at_us=5, restart_us=5}]"], "faults[0].restart_us", "not after"),
    (
        ["faults=[{kind='crash', nodes='n1', at_us=5}, {kind='crash', nodes='n1', at_us=9}]"],
        "faults[1].at_us",
        "down",
    ),
    (
        ["faults=[{kind='random_crashes', count=9, stop_us=9, lasting={kind='constant', value_us=50}}]"],
        "faults[0].count",
        "no place",
    ),
    (["faults=[{kind='slow', nodes='n1'}]"], "faults[0]", "slows nothing"),
    (["faults=[{kind='slow', nodes='n1', factor=0.5}]"], "faults[0].factor", ">= 1"),
    (["faults=[{kind='skew', nodes='n1'}]"], "faults[0]", "clock is right"),
    (
        ["faults=[{kind='skew', nodes='n1', offset_us=5}, {kind='skew', nodes='all', drift_ppm=5}]"],
        "faults[1].nodes",
        "another fault",
    ),
    (["faults=[{kind='meteor'}]"], "faults[0].kind", "meteor"),
]


@pytest.mark.parametrize(("assignments", "field", "reason"), REFUSED, ids=lambda value: str(value)[:60])
def test_impossible_scenarios_name_the_field_the_reason_and_a_fix(
    assignments: list[str], field: str, reason: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        from_dict(changed(*assignments))
    assert f"'{field}'" in caught.value.what
    assert reason in caught.value.reason
    assert caught.value.fix


def test_a_misspelt_field_gets_a_hint() -> None:
    with pytest.raises(ScenarioError, match="Did you mean 'loss'"):
        from_dict(changed("link.los=0.1"))


def test_an_unknown_kind_gets_the_list() -> None:
    with pytest.raises(ScenarioError, match="partition, random_partitions, crash"):
        from_dict(changed("faults=[{kind='meteor'}]"))
    with pytest.raises(ScenarioError, match="constant, uniform, normal"):
        from_dict(changed('link.delay={kind="gaussian", mean_us=1}'))


def test_protocol_errors_are_the_registry_s() -> None:
    with pytest.raises(UnknownProtocolError, match="vector"):
        from_dict(changed("protocol=vectr"))
    with pytest.raises(ParameterError, match="relay"):
        from_dict(changed("params.relya=true"))


def test_a_scenario_built_in_python_is_checked_before_it_runs() -> None:
    scenario = Scenario(nodes=4, protocol="vector", stop=Stop(duration_us=1_000))
    with pytest.raises(ScenarioError, match="workloads"):
        simulate(scenario)
    wrong = Scenario(
        nodes=4,
        protocol="vector",
        link=Link(loss=2.0),
        workloads=[Periodic(interval_us=5)],
        stop=Stop(duration_us=1_000),
    )
    with pytest.raises(ScenarioError, match="loss"):
        checked(wrong)


WHOLE = to_dict(from_dict(SMALL)) | {
    "overrides": [{"from_nodes": "n0", "loss": 0.5}],
    "faults": [{"kind": "crash", "nodes": "n1", "at_us": 5}, {"kind": "skew", "nodes": 2, "offset_us": 5}],
}


def paths(value: Any, before: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Where something stands in plain data."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [before, *(path for key, element in inner for path in paths(element, (*before, str(key))))]


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2_000) | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(paths(WHOLE)[1:]), anything)
def test_no_value_anywhere_is_more_than_a_typed_error(path: tuple[str, ...], value: Any) -> None:
    data = deepcopy(WHOLE)
    target: Any = data
    for key in path[:-1]:
        target = target[int(key)] if isinstance(target, list) else target[key]
    target[int(path[-1]) if isinstance(target, list) else path[-1]] = value
    try:
        scenario = from_dict(data)
    except WhenceError:
        return
    assert from_dict(to_dict(scenario)) == scenario
    run_id(scenario)


# Documentation


def sections() -> list[type[msgspec.Struct]]:
    found = [
        each
        for each in vars(model).values()
        if isinstance(each, type) and issubclass(each, msgspec.Struct) and each.__module__ == model.__name__
    ]
    return [each for each in [*found, *get_args(Delay)] if not each.__name__.startswith("_")]


HEADINGS = {
    "Scenario": "## The run",
    "Stop": "### `[stop]`",
    "Record": "### `[record]`",
    "Link": "## `[link]`",
    "Override": "### `[[overrides]]`",
}


def documented(section: type[msgspec.Struct]) -> dict[str, list[str]]:
    """The rows of the table of one section in docs/scenarios.md: field -> the other cells."""
    text = (ROOT / "docs" / "scenarios.md").read_text()
    tag = section.__struct_config__.tag
    heading = HEADINGS[section.__name__] if tag is None else f'\n`kind = "{tag}"`'
    assert text.count(heading) == 1, heading
    body = text[text.index(heading) + len(heading) :]
    ends = [body.find(mark) for mark in ("\n#", "\n`kind = ")]
    body = body[: min((end for end in ends if end >= 0), default=len(body))]
    rows = [line.strip("|").split("|") for line in body.splitlines() if line.startswith("| `")]
    return {cells[0].strip().strip("`"): [cell.strip() for cell in cells[1:]] for cells in rows}


@pytest.mark.parametrize("section", sections(), ids=lambda section: section.__name__)
def test_every_field_is_documented_with_its_default(section: type[msgspec.Struct]) -> None:
    rows = documented(section)
    fields = {field.name: field for field in msgspec.structs.fields(section)}
    assert set(rows) == set(fields)
    for name, field in fields.items():
        default = rows[name][1]
        if field.required:
            assert default == "-", name
        elif isinstance(field.default, bool | int | float | str):
            plain = str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
            assert default.strip('`"').replace("_", "") == plain, name
        else:
            assert default, name

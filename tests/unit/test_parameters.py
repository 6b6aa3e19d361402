"""Parameters are declared once: every place that knows of one reads the declaration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from whence.core.parameters import Parameters, choice, flag, whole
from whence.errors import ParameterError
from whence.protocols import registry

DOCS = Path(__file__).parents[2] / "docs"
SMALL = Parameters(whole("size", 3, 1, 9), flag("loud", default=False))
LARGE = Parameters(whole("size", 3, 1, 9), whole("grip_us", None, 0, optional=True))
BOTH = Parameters.by_mode(choice("mode", "small", ("small", "large")), {"small": SMALL, "large": LARGE}, 1)


def test_what_is_not_given_has_its_default() -> None:
    assert SMALL.read("p", {"loud": True}) == {"size": 3, "loud": True}
    assert BOTH.defaults == {"size": 3, "mode": "small", "loud": False, "grip_us": None}
    assert BOTH.read("p", {"mode": "large", "grip_us": None})["mode"] == "large"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"size": 0}, "size: 0 is not a whole number from 1 to 9"),
        ({"size": 10}, "10 is not"),
        ({"size": True}, "True is not"),
        ({"size": 2.0}, "2.0 is not"),
        ({"size": None}, "None is not"),
        ({"loud": 1}, "1 is not true or false"),
        ({"mode": "huge"}, "'huge' is not one of small, large"),
        ({"mode": ["small"]}, "is not one of"),
        ({"grip_us": -1, "mode": "large"}, "-1 is not a whole number from 0"),
        ({"sise": 1}, "parameter 'sise' of protocol 'p'.*Choose from: grip_us, loud, mode, size"),
        ({"grip_us": 1}, "grip_us.*only with mode = 'large'"),
        ({"loud": False, "mode": "large"}, "loud.*only with mode = 'small'"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        BOTH.read("p", given)


PUBLISHED = {"mode": "published"}


@pytest.mark.parametrize(
    ("protocol", "given", "unused"),
    [
        *(("tdca", PUBLISHED, name) for name in ("deadlines", "copies", "margin_us", "buffer_bytes")),
        *(("odca", PUBLISHED, name) for name in ("pull", "pulls", "retry_us", "reply_bytes", "copies")),
        ("tdca", {}, "tick_us"),
        *(("odca", {}, name) for name in ("tick_us", "strict")),
        *((protocol, PUBLISHED, "skew_us") for protocol in ("barrier", "oppnet")),
        *(("vcube", {}, name) for name in ("joins", "test_interval_us", "test_timeout_us")),
        ("vcube", {"detect": True}, "tree"),
    ],
)
def test_a_parameter_that_the_mode_does_not_use_is_refused(
    protocol: str, given: dict[str, Any], unused: str
) -> None:
    info = registry.lookup(protocol)
    with pytest.raises(ParameterError, match=f"^{unused}: .*uses it only with"):
        registry.make(protocol, "a", ["a", "b"], {**given, unused: info.parameters[unused]})


def test_a_live_node_sets_only_what_counts_in_its_mode() -> None:
    odca = registry.lookup("odca")
    assert odca.live_parameters({"copies": 1}) == {"pulls": 40, "copies": 1}
    assert odca.live_parameters({"mode": "published"}) == {"mode": "published"}
    assert registry.lookup("vcube").live_parameters({"detect": False}) == {"detect": False}


@pytest.mark.parametrize("protocol", registry.names())
def test_every_default_is_accepted_alone(protocol: str) -> None:
    info = registry.lookup(protocol)
    for name, default in info.parameters.items():
        if info.declared.counts(name, {}):
            registry.make(protocol, "a", ["a", "b"], {name: default})


@pytest.mark.parametrize("protocol", registry.names())
def test_every_parameter_is_documented(protocol: str) -> None:
    text = "\n".join(path.read_text() for path in DOCS.glob("*.md"))
    for name in registry.lookup(protocol).parameters:
        assert f"`{name}" in text, f"{name} of {protocol}"

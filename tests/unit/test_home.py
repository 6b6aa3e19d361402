"""The wheel's addresses come from the place that builds it (hatch_build.py)."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

spec = spec_from_file_location("hatch_build", Path(__file__).parents[2] / "hatch_build.py")
assert spec is not None
assert spec.loader is not None
hatch_build = module_from_spec(spec)
spec.loader.exec_module(hatch_build)
README = "![a picture](docs/p.svg) [Log](docs/log.md#rules) [there](https://x.example/a) [here](#top)"


@pytest.mark.parametrize(
    ("environment", "home"),
    [
        ({}, ""),
        ({"GITHUB_SERVER_URL": "https://g.example", "GITHUB_REPOSITORY": "us/w"}, "https://g.example/us/w"),
        ({"GITHUB_SERVER_URL": "https://g.example"}, ""),
        ({"WHENCE_HOME": "https://f.example/w/", "GITHUB_REPOSITORY": "us/w"}, "https://f.example/w"),
    ],
)
def test_the_home_is_what_the_builder_says(environment: dict[str, str], home: str) -> None:
    assert hatch_build.home(environment) == home


def test_without_a_home_no_address_is_invented() -> None:
    assert hatch_build.urls("") == {}
    assert hatch_build.standing_alone(README, "") == (
        "*a picture* Log (`docs/log.md#rules`) [there](https://x.example/a) [here](#top)"
    )


def test_with_a_home_links_lead_there() -> None:
    assert set(hatch_build.urls("https://f.example/w")) >= {"Homepage", "Source", "Issues"}
    assert hatch_build.standing_alone(README, "https://f.example/w") == (
        "![a picture](https://f.example/w/raw/main/docs/p.svg) "
        "[Log](https://f.example/w/blob/main/docs/log.md#rules) [there](https://x.example/a) [here](#top)"
    )

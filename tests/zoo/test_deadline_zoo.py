"""The zoo of deadlines: random worlds catch every broken variant, by what it does wrong, and no right one."""

from __future__ import annotations

from collections import Counter
from itertools import count, islice

import pytest

from support.deadline_worlds import judge, scenario
from whence.protocols.deadline.odca import Odca
from whence.sim.files import from_dict
from zoo.mutants.deadline import DEADLINE, Unchecked, Variant

WORLDS = 300  # a mutant's worlds end when all is found that gives it away
ODCA_WORLDS = [seed for seed in islice(count(), 2 * WORLDS) if scenario(seed)["protocol"] == "odca"][:WORLDS]


def wrong(make: type[Odca], seed: int) -> dict[str, int]:
    data = scenario(seed)
    return judge(from_dict(data), make, **data["params"]).wrong


@pytest.mark.parametrize("variant", DEADLINE, ids=lambda variant: variant.name)
def test_every_broken_variant_is_caught_for_what_it_does(variant: Variant) -> None:
    found: Counter[str] = Counter()
    for seed in ODCA_WORLDS:
        found.update(wrong(variant.make, seed))
        if variant.found <= found.keys():
            return
    pytest.fail(f"in {WORLDS} worlds only {dict(found)} was found")


@pytest.mark.parametrize("make", [Odca, Unchecked])
def test_the_right_one_is_not(make: type[Odca]) -> None:
    """What the mutants are made of is right: they are caught for what they change."""
    for seed in ODCA_WORLDS[:60]:
        assert wrong(make, seed) == {}, seed

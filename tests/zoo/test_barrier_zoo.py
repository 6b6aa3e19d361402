"""The zoo of barriers and contacts: random worlds catch every broken variant and flag no right one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from support.barrier_worlds import random_run
from whence.core.protocol import Protocol
from whence.protocols.barrier.broadcast import Barrier
from whence.protocols.barrier.oppnet import Oppnet
from zoo.mutants.barrier import ORDER, UncheckedBarrier, UncheckedOppnet, Variant
from zoo.mutants.carry import CARRY

RIGHT_WORLDS, MUTANT_WORLDS = 100, 1_000  # a mutant's worlds end with the first in which it is caught
# Where they begin, if not with the first world: those before do not catch it.
CAUGHT_IN = {
    "NamesNothingAdopted": 155,
    "RestartForgetsWhatCame": 92,
    "IgnoresSkew": 24,
    "RestartForgetsTheCache": 23,
    "CacheAloneKnowsTheLate": 19,
}

# What the mutants are made of is right too: they are caught for what they change.
RIGHT = [
    (Barrier, "barrier"),
    (Oppnet, "oppnet"),
    (UncheckedBarrier, "barrier"),
    (UncheckedOppnet, "oppnet"),
]


def judged(make: Callable[..., Protocol], protocol: str, seed: int, **params: int) -> Counter[str]:
    net = random_run(seed, protocol, make=make, **params)
    if protocol == "oppnet" and not net.params["capacity"]:
        net.end_in_a_line()
    return net.verdict()


def caught(
    variant: Variant, make: Callable[..., Protocol], protocol: str, first: int = 0
) -> tuple[int, Counter[str]]:
    found: Counter[str] = Counter()
    for seed in range(first, MUTANT_WORLDS):
        found += judged(make, protocol, seed, **variant.world)
        if variant.gives_away & found.keys():
            return seed, found
    return -1, found


@pytest.mark.parametrize("variant", ORDER, ids=lambda variant: variant.name)
def test_every_broken_order_is_caught_over_links(variant: Variant) -> None:
    seed, found = caught(variant, variant.over_links, "barrier", CAUGHT_IN.get(variant.name, 0))
    assert seed >= 0, dict(found)


@pytest.mark.parametrize("variant", CARRY, ids=lambda variant: variant.name)
def test_every_broken_way_to_carry_is_caught(variant: Variant) -> None:
    seed, found = caught(variant, variant.over_contacts, "oppnet", CAUGHT_IN.get(variant.name, 0))
    assert seed >= 0, dict(found)


# Over contacts nobody takes over a past.
OVER_CONTACTS = [each for each in ORDER if each.is_order and "joiners" not in each.world]


@pytest.mark.slow
@pytest.mark.parametrize("variant", OVER_CONTACTS, ids=lambda variant: variant.name)
def test_every_broken_order_is_caught_over_contacts(variant: Variant) -> None:
    seed, found = caught(variant, variant.over_contacts, "oppnet")
    assert seed >= 0, dict(found)


@pytest.mark.parametrize(("make", "protocol"), RIGHT)
def test_no_right_core_is_flagged(make: Callable[..., Protocol], protocol: str) -> None:
    for seed in range(RIGHT_WORLDS):
        assert judged(make, protocol, seed) == Counter(), seed


@pytest.mark.slow
@pytest.mark.parametrize(("make", "protocol"), RIGHT[:2])
def test_no_right_core_is_flagged_in_a_thousand_worlds(make: Callable[..., Protocol], protocol: str) -> None:
    for seed in range(RIGHT_WORLDS, 1_000):
        assert judged(make, protocol, seed) == Counter(), seed


def test_every_variant_has_a_name_of_its_own() -> None:
    names = [variant.name for variant in ORDER + CARRY]
    assert len(set(names)) == len(names)

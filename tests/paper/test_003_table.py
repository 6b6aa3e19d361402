"""The specification's table for paper 003: every line of it, as a mutant, is caught by random testing."""

from __future__ import annotations

import pytest

from support.prc_worlds import one_run
from zoo.mutants.prc import MUTANTS, Mutant, haunted

SEEDS = 400  # the rarest (5) shows in one of sixty schedules


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_line_is_caught(mutant: Mutant) -> None:
    for seed in range(SEEDS):
        overlay = one_run(seed, prepare=mutant.prepare, make=mutant.make, **mutant.params)
        if overlay.problems() & mutant.gives_away:
            return
    pytest.fail(f"{mutant.name} was never caught")


def test_all_sixteen_lines_have_a_mutant() -> None:
    assert {mutant.line for mutant in MUTANTS} == set(range(1, 17))


def test_the_right_core_survives_the_hosts_of_the_mutants_that_it_guards_against() -> None:
    """Copies on removed links (1) arrive late; the guard drops them all."""
    for seed in range(60):
        overlay = one_run(seed, prepare=haunted)
        assert overlay.problems() == set(), seed

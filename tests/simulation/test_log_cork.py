"""Storms of the log core with messages that wait for company, as live nodes let them."""

from __future__ import annotations

import pytest

from support.log_worlds import storm


@pytest.mark.parametrize("seed", range(40))
def test_messages_that_wait_for_company_break_nothing(seed: int) -> None:
    assert storm(50_000 + seed, cork_us=30_000).observer.stories == []

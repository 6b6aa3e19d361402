"""Broadcasts that share a commit: tasks that wait together, and go on together or alone."""

from __future__ import annotations

import asyncio

import pytest

from support.living import in_a_loop
from whence.core.message import MessageId
from whence.errors import MisuseError, StoreError
from whence.live.store import Saying

IDS = [MessageId("a", number) for number in (1, 2, 3)]


def three() -> tuple[Saying, list[asyncio.Task[MessageId]]]:
    saying = Saying(0, asyncio.get_running_loop())

    async def wait(at: int) -> MessageId:
        await saying
        return saying.outcome(at)

    return saying, [asyncio.create_task(wait(at)) for at in range(3)]


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@in_a_loop
async def test_each_is_given_its_own_id() -> None:
    saying, tasks = three()
    await turns(3)
    assert not any(task.done() for task in tasks)
    saying.happened(list(IDS))
    assert await asyncio.gather(*tasks) == IDS
    await saying  # one that comes late does not wait
    assert saying.outcome(2) == IDS[2]


@in_a_loop
async def test_who_is_cancelled_does_not_wait_for_the_disk_and_the_others_do() -> None:
    saying, tasks = three()
    await turns(1)
    tasks[1].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[1]
    await turns(3)
    assert not tasks[0].done()
    assert not tasks[2].done()
    saying.happened(list(IDS))
    assert [await tasks[0], await tasks[2]] == [IDS[0], IDS[2]]


@in_a_loop
async def test_who_was_cancelled_before_it_waited_does_not_wait() -> None:
    saying, tasks = three()
    tasks[0].cancel()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await saying
    assert tasks[0].cancelled()
    saying.happened(list(IDS))
    assert await tasks[1] == IDS[1]


@in_a_loop
async def test_a_disk_that_fails_refuses_all_each_with_an_error_of_its_own() -> None:
    saying, tasks = three()
    await turns(1)
    saying.refuse(StoreError("store x", "it is full", "Make room"))
    errors = await asyncio.gather(*tasks, return_exceptions=True)
    assert [str(error) for error in errors] == [str(errors[0])] * 3
    assert all(isinstance(error, StoreError) for error in errors)
    assert len(set(map(id, errors))) == 3


@in_a_loop
async def test_what_the_core_refuses_is_refused_alone() -> None:
    saying, tasks = three()
    saying.happened([IDS[0], MisuseError("x", "no", "do not"), IDS[2]])
    first, second, third = await asyncio.gather(*tasks, return_exceptions=True)
    assert (first, third) == (IDS[0], IDS[2])
    assert isinstance(second, MisuseError)


def test_a_task_that_ends_the_program_does_not_leave_the_others_behind() -> None:
    seen: list[int] = []

    async def go() -> None:
        saying = Saying(0, asyncio.get_running_loop())

        async def wait(at: int) -> None:
            await saying
            seen.append(at)
            if at == 0:
                raise SystemExit(3)

        tasks = [asyncio.create_task(wait(at)) for at in range(3)]
        await turns(1)
        saying.happened(list(IDS))
        await asyncio.gather(*tasks)

    loop = asyncio.new_event_loop()
    main = loop.create_task(go())
    with pytest.raises(SystemExit):
        loop.run_until_complete(main)
    with pytest.raises(SystemExit):
        loop.run_until_complete(main)
    assert seen == [0, 1, 2]
    loop.close()

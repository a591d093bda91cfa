"""Group commit: coalescing, halving, repeating, back-pressure, and an answer for everybody."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest

from headrace.errors import Overloaded, Unavailable, Unstorable
from headrace.runtime.host import Host
from headrace.runtime.writes.batcher import Batcher
from headrace.runtime.writes.load import Load
from tests.support.until import until

Done = Callable[[str | BaseException | None], None]


class Short:
    """A short way for one item, on which nothing arrives before the test says so."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.done: Done | None = None
        self.open = True

    def begin(self, item: int, done: Done) -> bool:
        if not self.open:
            return False
        assert self.done is None, "one is under way already"
        self.begun.append(item)
        self.done = done
        return True

    def arrive(self, answer: str | BaseException | None) -> None:
        done, self.done = self.done, None
        assert done is not None
        done(answer)


class Store:
    """Keeps what is written, a batch at a time, and stands still when asked to."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.fault: Callable[[list[int]], Exception | None] = lambda items: None

    async def write(self, items: list[int]) -> list[str]:
        """One commit."""
        await self.open.wait()
        await asyncio.sleep(0)
        fault = self.fault(items)
        if fault is not None:
            raise fault
        self.batches.append(items)
        return [f"stored {item}" for item in items]


@asynccontextmanager
async def lane(store: Store, **options: object) -> AsyncIterator[Batcher[int, str]]:
    settings: dict[str, object] = {"capacity": None, "timeout": 5.0} | options
    batcher: Batcher[int, str] = Batcher(
        store.write,
        Host(),
        name="things",
        identify=lambda item: UUID(int=item),
        weigh=lambda item: 100,
        **settings,  # type: ignore[arg-type]
    )
    yield batcher
    await batcher.close()


async def test_a_thousand_concurrent_puts_cost_a_handful_of_writes() -> None:
    store = Store()
    async with lane(store) as batcher:
        answers = await asyncio.gather(*(batcher.put(n) for n in range(1000)))
    assert answers == [f"stored {n}" for n in range(1000)]
    assert len(store.batches) <= 3


async def test_a_single_one_waits_for_nobody() -> None:
    store = Store()
    async with lane(store) as batcher:
        assert await batcher.put(1) == "stored 1"
        assert await batcher.put(2) == "stored 2"
    assert store.batches == [[1], [2]]


async def test_what_comes_while_a_write_is_in_flight_forms_the_next_one() -> None:
    store = Store()
    store.open.clear()
    async with lane(store) as batcher:
        first = asyncio.create_task(batcher.put(0))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        rest = [asyncio.create_task(batcher.put(n)) for n in range(1, 50)]
        await asyncio.sleep(0)
        store.open.set()
        await asyncio.gather(first, *rest)
    assert [len(batch) for batch in store.batches] == [1, 49]


async def test_few_who_are_out_of_step_do_not_take_turns_with_many() -> None:
    store, gate = Store(), asyncio.Semaphore(50)

    async def slowly(items: list[int]) -> list[str]:
        for _ in range(10):
            await asyncio.sleep(0)
        return await store.write(items)

    async def submit(item: int) -> None:
        async with gate:
            await things.put(item)

    async with lane(store) as things:
        things._write = slowly
        first = asyncio.create_task(submit(0))
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # it is on its way, alone, when the others come
        await asyncio.gather(first, *(submit(item) for item in range(1, 500)))
    sizes = [len(batch) for batch in store.batches]
    assert sizes[:2] == [1, 49]
    assert len(sizes) <= 12, sizes


async def test_a_batch_has_at_most_a_thousand_rows() -> None:
    store = Store()
    async with lane(store) as batcher:
        await asyncio.gather(*(batcher.put(n) for n in range(2500)))
    assert [len(batch) for batch in store.batches] == [1000, 1000, 500]


async def test_items_put_together_are_written_together() -> None:
    store = Store()
    async with lane(store) as batcher:
        await asyncio.gather(batcher.put_many(range(600)), batcher.put_many(range(600, 1200)))
    assert [len(batch) for batch in store.batches] == [600, 600]


async def test_two_items_of_one_key_never_share_a_write() -> None:
    store = Store()
    async with lane(store, distinct=lambda item: item % 10) as batcher:
        await asyncio.gather(*(batcher.put(n) for n in range(20)))
    assert store.batches == [list(range(10)), list(range(10, 20))]


async def test_one_bad_row_in_a_hundred_fails_alone() -> None:
    store = Store()
    store.fault = lambda items: Unstorable("row 37 is bad") if 37 in items else None
    async with lane(store) as batcher:
        answers = await asyncio.gather(*(batcher.put(n) for n in range(100)), return_exceptions=True)
    assert [n for n, answer in enumerate(answers) if isinstance(answer, Unstorable)] == [37]
    assert sorted(item for batch in store.batches for item in batch) == [n for n in range(100) if n != 37]


async def test_a_lost_reply_is_repeated_until_the_answer_is_known() -> None:
    store = Store()
    tries: list[list[int]] = []

    def fault(items: list[int]) -> Exception | None:
        tries.append(items)
        return Unavailable("lost", outcome="unknown") if len(tries) < 3 else None

    store.fault = fault
    async with lane(store) as batcher:
        assert await batcher.put(5) == "stored 5"
    assert tries == [[5], [5], [5]]


async def test_patience_ends_with_the_outcome_unknown_and_the_ids() -> None:
    store = Store()
    faults = iter([Unavailable("lost", outcome="unknown")])
    store.fault = lambda items: next(faults, Unavailable("no route"))
    async with lane(store, timeout=0.15) as batcher:
        with pytest.raises(Unavailable) as caught:
            await batcher.put_many([7, 8])
    assert caught.value.outcome == "unknown"
    assert caught.value.ids == (UUID(int=7), UUID(int=8))


async def test_a_write_that_never_happened_is_told_apart() -> None:
    store = Store()
    store.fault = lambda items: Unavailable("no route")
    async with lane(store, timeout=0.1) as batcher:
        with pytest.raises(Unavailable) as caught:
            await batcher.put(7)
    assert caught.value.outcome == "refused"


async def test_a_full_lane_makes_callers_wait_and_then_refuses() -> None:
    store = Store()
    store.open.clear()
    async with lane(store, capacity=10, timeout=0.1) as batcher:
        held = [asyncio.create_task(batcher.put(n)) for n in range(11)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert batcher.waiting <= 10
        more = [asyncio.create_task(batcher.put(100 + n)) for n in range(10)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await batcher.put(999)
        store.open.set()
        await asyncio.gather(*held, *more, return_exceptions=True)
    assert 999 not in [item for batch in store.batches for item in batch]


async def test_a_caller_that_gave_up_before_the_write_leaves_nothing_behind() -> None:
    store = Store()
    store.open.clear()
    async with lane(store) as batcher:
        first = asyncio.create_task(batcher.put(1))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        second = asyncio.create_task(batcher.put(2))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.sleep(0)
        store.open.set()
        await first
    assert store.batches == [[1]]


async def test_an_unforeseen_error_reaches_every_waiter() -> None:
    store = Store()
    store.fault = lambda items: ZeroDivisionError("oops")
    async with lane(store) as batcher:
        answers = await asyncio.gather(*(batcher.put(n) for n in range(5)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [Unavailable] * 5
    assert all(isinstance(answer, Unavailable) and answer.outcome == "unknown" for answer in answers)


async def test_close_answers_everybody_and_takes_no_more() -> None:
    store = Store()
    store.open.clear()
    async with lane(store) as batcher:
        waiting = [asyncio.create_task(batcher.put(n)) for n in range(3)]
        await asyncio.sleep(0)
        closing = asyncio.create_task(batcher.close())
        await asyncio.sleep(0)
        with pytest.raises(Unavailable):
            await batcher.put(9)
        store.open.set()
        await closing
        assert await asyncio.gather(*waiting) == ["stored 0", "stored 1", "stored 2"]


async def test_close_gives_up_on_a_silent_store() -> None:
    store = Store()
    store.fault = lambda items: Unavailable("no route")
    async with lane(store, timeout=None) as batcher:
        waiting = asyncio.create_task(batcher.put(1))
        await asyncio.sleep(0)
        await batcher.close(timeout=0.05)
        with pytest.raises(Unavailable):
            await waiting


async def test_one_who_stumbles_over_the_answer_does_not_keep_the_others_from_theirs() -> None:
    class Clumsy:
        items: Sequence[int] = (1,)
        weight, since = 0, 0.0

        def wanted(self) -> bool:
            return True

        def answer(self, answers: Sequence[str]) -> None:
            raise ZeroDivisionError

        def reject(self, error: BaseException) -> None:
            raise AssertionError

    store = Store()
    async with lane(store) as batcher:
        batcher.add(Clumsy())
        assert await batcher.put(2) == "stored 2"
        assert await batcher.put(3) == "stored 3"
    assert store.batches == [[1, 2], [3]]


async def test_a_lane_cancelled_while_it_halves_a_batch_leaves_nobody_waiting() -> None:
    store = Store()
    tried = asyncio.Event()

    def fault(items: list[int]) -> Exception | None:
        if len(items) == 4:
            return Unstorable("one of them is bad")
        store.open.clear()  # the first half hangs
        tried.set()
        return Unavailable("hang on")

    store.fault = fault
    async with lane(store) as batcher:
        waiting = [asyncio.create_task(batcher.put(n)) for n in range(4)]
        await asyncio.wait_for(tried.wait(), 45)
        (pump,) = batcher._pumps
        pump.cancel()
        answers = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 45)
    assert [type(answer) for answer in answers] == [Unavailable] * 4


async def test_a_second_write_is_under_way_only_beside_a_first_and_for_much() -> None:
    store = Store()
    store.open.clear()
    async with lane(store, flights=2) as batcher:
        few = [asyncio.create_task(batcher.put(n)) for n in range(100)]
        await until(lambda: batcher._pumps)
        assert len(batcher._pumps) == 1
        many = [asyncio.create_task(batcher.put(n)) for n in range(100, 2000)]
        await until(lambda: len(batcher._pumps) == 2)
        late = [asyncio.create_task(batcher.put(n)) for n in range(2000, 2010)]
        await asyncio.sleep(0.01)
        store.open.set()
        answers = await asyncio.gather(*few, *many, *late)
    assert answers == [f"stored {n}" for n in range(2010)]
    assert sorted(item for batch in store.batches for item in batch) == list(range(2010))
    assert not batcher._pumps


async def test_a_lane_of_one_flight_never_has_two() -> None:
    store = Store()
    store.open.clear()
    async with lane(store) as batcher:
        waiting = [asyncio.create_task(batcher.put(n)) for n in range(3000)]
        await until(lambda: batcher._pumps)
        await asyncio.sleep(0.01)
        assert len(batcher._pumps) == 1
        store.open.set()
        await asyncio.gather(*waiting)
    assert [item for batch in store.batches for item in batch] == list(range(3000))


class Over(asyncio.Future[None]):
    """A task that was over before it was returned."""

    def set_name(self, name: str) -> None:
        pass


async def test_a_loop_whose_tasks_begin_at_once_is_as_good_as_another() -> None:
    store, loop = Store(), asyncio.get_running_loop()

    def eager(loop: asyncio.AbstractEventLoop, writing: Any, **options: Any) -> Any:
        with contextlib.suppress(StopIteration):
            while True:
                writing.send(None)
        over = Over(loop=loop)
        over.set_result(None)
        return over

    async with lane(store) as batcher:
        loop.set_task_factory(eager)
        try:
            assert await batcher.put(1) == "stored 1"
            await asyncio.sleep(0)
            assert not batcher._pumps
            assert await batcher.put(2) == "stored 2"
        finally:
            loop.set_task_factory(None)


# The short way of one that is alone


async def turns(count: int = 3) -> None:
    """Let whatever can go on do so."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_one_that_is_alone_takes_the_short_way_without_a_task() -> None:
    store, short = Store(), Short()
    async with lane(store, begin=short.begin) as batcher:
        for n in (1, 2):
            putting = asyncio.create_task(batcher.put(n))
            await turns()
            assert short.begun[-1] == n
            assert asyncio.all_tasks() == {putting, asyncio.current_task()}
            short.arrive(f"answer {n}")
            assert await putting == f"answer {n}"
    assert store.batches == []


async def test_what_comes_while_one_is_on_the_short_way_is_written_together_after_it() -> None:
    store, short = Store(), Short()
    async with lane(store, begin=short.begin) as batcher:
        putting = [asyncio.create_task(batcher.put(n)) for n in range(10)]
        await turns()
        assert (short.begun, store.batches, batcher.waiting) == ([0], [], 9)
        short.arrive("first")
        assert await asyncio.gather(*putting) == ["first", *(f"stored {n}" for n in range(1, 10))]
        assert store.batches == [list(range(1, 10))]
        # There were many: the next ones are most likely not alone either, and none of them goes ahead.
        await asyncio.gather(*(batcher.put(n) for n in range(10, 20)))
        assert (short.begun, store.batches[1:]) == ([0], [list(range(10, 20))])
        assert await batcher.put(20) == "stored 20"
        last = asyncio.create_task(batcher.put(21))
        await turns()
        assert short.begun == [0, 21]
        short.arrive("alone again")
        assert await last == "alone again"


async def test_many_put_together_do_not_take_the_short_way() -> None:
    store, short = Store(), Short()
    async with lane(store, begin=short.begin) as batcher:
        assert await batcher.put_many([1, 2]) == ["stored 1", "stored 2"]
    assert short.begun == []


async def test_where_the_short_way_is_shut_one_is_written_as_ever() -> None:
    store, short = Store(), Short()
    short.open = False
    async with lane(store, begin=short.begin) as batcher:
        assert await batcher.put(1) == "stored 1"


async def test_a_caller_who_is_cancelled_leaves_at_once_and_the_write_keeps_the_lane() -> None:
    store, short = Store(), Short()
    async with lane(store, begin=short.begin) as batcher:
        first = asyncio.create_task(batcher.put(1))
        await turns()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        second = asyncio.create_task(batcher.put(2))
        await turns(10)
        assert (short.begun, store.batches, second.done()) == ([1], [], False)
        short.arrive("to nobody")
        assert await second == "stored 2"


async def test_what_the_short_way_cannot_do_is_written_the_usual_way_before_what_came_later() -> None:
    store, short = Store(), Short()
    async with lane(store, begin=short.begin) as batcher:
        putting = [asyncio.create_task(batcher.put(n)) for n in range(3)]
        await turns()
        short.arrive(None)
        assert await asyncio.gather(*putting) == ["stored 0", "stored 1", "stored 2"]
    assert store.batches == [[0], [1, 2]]


async def test_a_reply_that_is_lost_on_the_short_way_is_asked_for_again() -> None:
    store, short = Store(), Short()
    async with lane(store, begin=short.begin) as batcher:
        putting = asyncio.create_task(batcher.put(1))
        await turns()
        short.arrive(Unavailable("lost", outcome="unknown"))
        assert await putting == "stored 1"


async def test_patience_after_a_loss_on_the_short_way_ends_with_the_outcome_unknown() -> None:
    store, short = Store(), Short()
    store.fault = lambda items: Unavailable("no route")  # which says of itself that nothing was written
    async with lane(store, timeout=0.15, begin=short.begin) as batcher:
        putting = asyncio.create_task(batcher.put(7))
        await turns()
        short.arrive(Unavailable("lost", outcome="unknown"))
        with pytest.raises(Unavailable) as caught:
            await putting
    assert (caught.value.outcome, caught.value.ids) == ("unknown", (UUID(int=7),))


async def test_what_cannot_be_stored_is_refused_on_the_short_way_too() -> None:
    store, short = Store(), Short()
    async with lane(store, begin=short.begin) as batcher:
        for error, raised in ((Unstorable("bad"), Unstorable), (ZeroDivisionError("oops"), Unavailable)):
            putting = asyncio.create_task(batcher.put(1))
            await turns()
            short.arrive(error)
            with pytest.raises(raised):
                await putting
            assert await batcher.put_many([8, 9]) == ["stored 8", "stored 9"]  # and the lane goes on
            assert await batcher.put(10) == "stored 10"


async def test_close_waits_for_what_is_on_the_short_way_and_for_what_came_behind_it() -> None:
    store, short = Store(), Short()
    async with lane(store, begin=short.begin) as batcher:
        putting = [asyncio.create_task(batcher.put(n)) for n in range(2)]
        await turns()
        closing = asyncio.create_task(batcher.close())
        await turns(10)
        assert not closing.done()
        with pytest.raises(Unavailable):
            await batcher.put(9)
        short.arrive("first")
        await closing
        assert await asyncio.gather(*putting) == ["first", "stored 1"]


async def test_a_short_way_that_breaks_does_not_block_the_lane() -> None:
    def broken(item: int, done: Done) -> bool:
        raise ZeroDivisionError

    store = Store()
    async with lane(store, begin=broken) as batcher:
        with pytest.raises(ZeroDivisionError):
            await batcher.put(1)
        assert await batcher.put_many([1, 2]) == ["stored 1", "stored 2"]


async def test_what_nobody_foresaw_fails_alone_and_is_not_known() -> None:
    store = Store()
    store.fault = lambda items: KeyError("a bug") if 13 in items else None
    async with lane(store) as batcher:
        answers = await asyncio.gather(*(batcher.put(n) for n in range(60)), return_exceptions=True)
    [error] = [answer for answer in answers if not isinstance(answer, str)]
    assert error is answers[13]
    assert isinstance(error, Unavailable)
    assert error.outcome == "unknown"
    assert error.ids == (UUID(int=13),)
    assert sorted(item for batch in store.batches for item in batch) == [n for n in range(60) if n != 13]


async def test_what_cannot_be_stored_is_refused_by_name() -> None:
    store = Store()
    store.fault = lambda items: Unstorable("too odd") if 13 in items else None
    async with lane(store) as batcher:
        with pytest.raises(Unstorable, match=f"^job {UUID(int=13)}: too odd$") as caught:
            await batcher.put(13)
        assert (caught.value.ids, caught.value.outcome) == ((UUID(int=13),), "refused")
        with pytest.raises(Unstorable, match="and 2 more: too odd") as caught:
            await batcher.put_many([11, 12, 13, 14, 15])
        assert caught.value.ids == tuple(UUID(int=n) for n in range(11, 16))


async def test_bytes_are_counted_until_they_are_answered() -> None:
    store, load = Store(), Load(350)
    store.open.clear()
    async with lane(store, capacity=1000, load=load) as batcher:
        running = [asyncio.create_task(batcher.put(n)) for n in range(10)]
        await until(lambda: load.full)
        for _ in range(10):
            await asyncio.sleep(0)
        assert load.bytes == 400
        running[3].cancel()
        store.open.set()
        await asyncio.gather(*running, return_exceptions=True)
        assert load.bytes == 0
        store.fault = lambda items: Unstorable("no") if 4 in items else None
        await asyncio.gather(*(batcher.put(n) for n in range(8)), return_exceptions=True)
        assert load.bytes == 0

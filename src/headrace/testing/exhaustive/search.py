"""The search: every step from every state, breadth first, so that the first violation has the shortest path."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from headrace.runtime.host import Host
from headrace.testing.exhaustive.form import form_of
from headrace.testing.exhaustive.invariants import check_rest, check_state, check_writes
from headrace.testing.exhaustive.scenes import Scene
from headrace.testing.exhaustive.steps import Step, calm, possible, take
from headrace.testing.exhaustive.world import Violation, World, told

__all__ = ["Found", "Result", "explore", "timeline"]

_MAX_CALM_STEPS = 100
"""How many steps a world may need to come to rest."""


@dataclass(frozen=True)
class Found:
    """A violation, and the steps that lead to it."""

    path: tuple[Step, ...]
    what: str


@dataclass(frozen=True)
class Result:
    """What an exploration has found."""

    scene: Scene
    faults: int
    states: int
    steps: int
    depth: int
    seconds: float
    whole: bool
    """Whether no state was left out."""
    found: Found | None = None


class _Search:
    """One exploration."""

    def __init__(self, scene: Scene, faults: int) -> None:
        self.scene, self.faults = scene, faults
        self.steps = 0
        self.came: dict[tuple[int, int], tuple[tuple[int, int] | None, Step | None]] = {}
        """Where each state was reached from, and by which step."""
        self.resting: set[int] = set()
        """The forms that are known to come to rest."""

    def take(self, world: World, step: Step) -> World:
        """Return the world after a step; :raises Violation: something does not hold"""
        made = world.copy()
        take(made, step)
        check_writes(made)
        return made

    def rest(self, world: World, form: int) -> None:
        """Go on without faults until nothing is left to be done; :raises Unrested: it does not come to rest"""
        passed, taken = list[int](), list[Step]()
        try:
            while form not in self.resting:
                passed.append(form)
                step = calm(world)
                if step is None:
                    check_rest(world)
                    break
                if form in passed[:-1] or len(taken) == _MAX_CALM_STEPS:
                    raise Violation("it does not come to rest")
                taken.append(step)
                world = self.take(world, step)
                check_state(world)
                form = form_of(world)
        except Violation as error:
            raise Unrested(tuple(taken), str(error)) from error
        self.resting.update(passed)

    def path(self, key: tuple[int, int] | None, *last: Step) -> tuple[Step, ...]:
        """Return the steps to a state, and those after it."""
        steps = list(reversed(last))
        while key is not None:
            key, step = self.came[key]
            if step is not None:
                steps.append(step)
        return tuple(reversed(steps))


class Unrested(Exception):
    """A world does not come to rest, with the steps that were taken."""

    def __init__(self, steps: tuple[Step, ...], what: str) -> None:
        super().__init__(what)
        self.steps = steps


def explore(
    scene: Scene, faults: int, *, seconds: float | None = None, shown: Callable[[int, int], None] | None = None
) -> Result:
    """Take every step from every state of a scene, with so many faults at most; stop at the first violation.

    ``seconds``: stop after so long. ``shown`` is called with the depth and the number of states of each level.
    """
    clock = Host().clock
    search, began, depth = _Search(scene, faults), clock.monotonic(), 0

    def result(*, whole: bool, found: Found | None = None) -> Result:
        took = clock.monotonic() - began
        return Result(scene, faults, len(search.came), search.steps, depth, took, whole, found)

    world = World.begin(scene)
    first = (form_of(world), 0)
    search.came[first] = (None, None)
    level = [(first, world)]
    restless: Found | None = None
    # What goes wrong on the way to rest may go wrong after fewer steps: the search goes on for as many.
    while level and (restless is None or depth + 1 < len(restless.path)):
        following = list[tuple[tuple[int, int], World]]()
        for key, world in level:
            if restless is None:
                try:
                    search.rest(world, key[0])
                except Unrested as error:
                    restless = Found(search.path(key, *error.steps), str(error))
            for step in possible(world, faults):
                search.steps += 1
                try:
                    made = search.take(world, step)
                    reached = (form_of(made), made.faults)
                    if reached in search.came:
                        continue
                    check_state(made)
                except Violation as error:
                    return result(whole=False, found=Found(search.path(key, step), str(error)))
                search.came[reached] = (key, step)
                following.append((reached, made))
            if seconds is not None and clock.monotonic() - began > seconds:
                return result(whole=False)
        depth += 1
        if shown is not None:
            shown(depth, len(following))
        level = following
    return result(whole=restless is None, found=restless)


def timeline(scene: Scene, path: Sequence[Step]) -> Iterator[str]:
    """Yield the steps of a path, each with what became of the jobs."""
    world = World.begin(scene)
    before = dict(world.state.table.records)
    for at, step in enumerate(path, 1):
        try:
            take(world, step)
        except Violation:
            yield f"{at:3}. {step}"
            return
        after = world.state.table.records
        changed = "; ".join(told(job) for id, job in after.items() if before.get(id) is not job)
        yield f"{at:3}. {step}" + (f": {changed}" if changed else "")
        before = dict(after)

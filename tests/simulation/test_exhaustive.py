"""The small model: every state of each scene, within a bound of faults."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.testing.exhaustive.__main__ import main
from headrace.testing.exhaustive.form import form_of
from headrace.testing.exhaustive.scenes import SCENES, Scene
from headrace.testing.exhaustive.search import explore, timeline
from headrace.testing.exhaustive.steps import Step, possible, take
from headrace.testing.exhaustive.world import World
from tests.support.seed import seed, thorough

ROOT = Path(__file__).parents[2]

_FEWEST_STATES = 100
"""Fewer states than any scene has with one fault: a search that finds no more looks at nothing."""


@pytest.mark.parametrize("name", SCENES)
def test_nothing_is_violated_and_every_state_comes_to_rest(name: str) -> None:
    result = explore(SCENES[name], SCENES[name].quick)
    assert result.found is None, "\n".join([result.found.what, *timeline(SCENES[name], result.found.path)])
    assert result.whole
    assert result.states > _FEWEST_STATES


def _futures(world: World, faults: int) -> dict[tuple[str, bool, int], World]:
    """What can be reached in one step, by the step and the form."""
    found = {}
    for step in possible(world, faults):
        made = world.copy()
        take(made, step)
        found[step.verb, step.late, form_of(made)] = made
    return found


_COMPARED = list(SCENES) if thorough() else random.Random(seed()).sample(list(SCENES), 1)


@pytest.mark.parametrize("name", _COMPARED)
def test_worlds_of_the_same_form_have_the_same_future(name: str) -> None:
    world = World.begin(SCENES[name])
    known = {(form_of(world), 0): frozenset(_futures(world, 1))}
    level, compared = [world], 0
    while level:
        following = []
        for world in level:
            for (*_, form), made in _futures(world, 1).items():
                future = frozenset(_futures(made, 1))
                if (form, made.faults) in known:
                    compared += 1
                    assert future == known[form, made.faults]
                else:
                    known[form, made.faults] = future
                    following.append(made)
        level = following
    assert compared > len(known)


def test_a_step_changes_no_other_world() -> None:
    world = World.begin(SCENES["batch"])
    other, form = world.copy(), form_of(world)
    for step in (Step("claims", 0), Step("starts", 0, 0), Step("completes", 0, 0), Step("notes are processed")):
        take(other, step)
    assert form_of(other) != form
    assert form_of(world) == form
    assert not world.processes[0].held


def test_which_of_two_equal_workers_and_jobs_it_is_does_not_matter() -> None:
    worlds = [World.begin(SCENES["pair"]) for _ in range(2)]
    for world, who in zip(worlds, (0, 1), strict=True):
        for step in (Step("claims", who), Step("starts", who, 0), Step("fails", who, 0)):
            take(world, step)
    assert form_of(worlds[0]) == form_of(worlds[1])
    cancelled = [World.begin(SCENES["pair"]) for _ in range(2)]
    for world, job in zip(cancelled, (0, 1), strict=True):
        take(world, Step("cancels", None, job))
    assert form_of(cancelled[0]) == form_of(cancelled[1])


def test_a_path_is_told_step_by_step() -> None:
    path = [Step("claims", 0), Step("starts", 0, 0), Step("completes", 0, 0, late=True), Step("a late write arrives")]
    assert list(timeline(SCENES["pair"], path)) == [
        "  1. worker A claims: job 1 accepted of A1, rev 2, epoch 1, attempt 0, charged 0",
        "  2. worker A starts job 1",
        "  3. worker A completes job 1, without a reply so far",
        "  4. a late write arrives: job 1 completed, rev 4, epoch 2, attempt 1, charged 1",
    ]


def test_the_command_prints_the_number_of_states(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rate", "--faults", "0"]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["scene", "faults", "states", "steps", "depth", "seconds"]
    states = explore(SCENES["rate"], 0).states
    assert row.split()[:3] == ["rate", "0", str(states)]


def test_a_scene_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["trio"])
    assert "no scene 'trio': there are pair, " in capsys.readouterr().err


def test_a_search_that_is_cut_short_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pair", "--seconds", "0"]) == 0
    assert "(not all)" in capsys.readouterr().out


def test_the_count_does_not_depend_on_the_hash_seed() -> None:
    counts = []
    for hashes in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-m", "headrace.testing.exhaustive", "limit", "--faults", "1"],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": hashes},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        counts.append(done.stdout.splitlines()[1].split()[:5])
    assert counts[0] == counts[1]


def test_every_scene_has_another_bound_for_make_sim() -> None:
    assert all(isinstance(scene, Scene) and scene.faults > scene.quick >= 1 for scene in SCENES.values())

"""``scale``: how many slots each queue needs, for people and for programs."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from headrace.cli.commands.scale import view
from headrace.client.api.scale import QueueScale, RequirementScale
from tests.cli.conftest import Shell

COLUMNS = ["queue", "backlog", "oldest", "arrive", "a slot does", "running", "slots", "needed", "wait", "requires"]
FIGURES = {
    "backlog": 143,
    "more": False,
    "running": 4,
    "oldest_age": 95.0,
    "arrival_rate": 0.25,
    "service_rate": 0.1,
    "slots": 6,
    "slots_needed": 74,
    "expected_wait": 236.7,
}
PARTS = (
    RequirementScale(profile="a", requires={}, tasks=("resize",), **FIGURES),  # type: ignore[arg-type]
    RequirementScale(profile="b", requires={"gpu": {"min": 24}}, tasks=("resize",), **FIGURES | {"slots": 2}),  # type: ignore[arg-type]
)
IMAGES = QueueScale(queue="images", paused=False, requirements=PARTS, **FIGURES)  # type: ignore[arg-type]
IDLE = QueueScale(
    queue="thumbnails",
    paused=True,
    requirements=(),
    backlog=100_000,
    more=True,
    running=0,
    oldest_age=None,
    arrival_rate=0.0,
    service_rate=None,
    slots=0,
    slots_needed=0,
    expected_wait=None,
)


def shown(columns: int) -> list[str]:
    out = Console(file=io.StringIO(), width=columns)
    out.print(view([IMAGES, IDLE], 30.0, columns))
    assert isinstance(out.file, io.StringIO)
    return [line.rstrip() for line in out.file.getvalue().splitlines()]


def test_what_is_needed_is_shown(shell: Shell) -> None:
    assert "no queues yet" in shell("scale", "--url", shell.url).stderr
    for name in ("a", "b", "c"):
        shell.submit("resize", f"image={name}.png")
    text = shell("scale", "--url", shell.url, "--wait", "1m").stdout
    head, images, legend = text.splitlines()
    assert re.split(r"\s{2,}", head.strip()) == COLUMNS
    assert images.split()[:2] == ["images", "3"]
    assert "95 % of the jobs begin within 1 m" in legend
    [found] = shell.json("scale", "--url", shell.url)
    assert (found["queue"], found["backlog"], found["slots"], found["slots_needed"]) == ("images", 3, 0, 2)
    assert found["requirements"][0]["tasks"] == ["resize"]
    [other] = shell.json("scale", "--url", shell.url, "--queue", "other")
    assert (other["queue"], other["slots_needed"]) == ("other", 0)
    assert "'soon' is not a duration" in shell("scale", "--wait", "soon", "--url", shell.url, code=2).stderr


def test_sets_of_requirements_are_below_their_queue() -> None:
    head, images, plain, gpu, idle, _ = shown(120)
    assert head.split()[0] == "queue"
    assert re.split(r"\s{2,}", images) == ["images", "143", "1 m 35 s", "15/min", "6/min", "4", "6", "74", "3 m 57 s"]
    assert plain.split()[-1] == "nothing"
    assert gpu.endswith('{"gpu": {"min": 24}}')
    assert idle.split() == ["thumbnails", "100000+", "0", "0", "0", "0", "paused"]


@pytest.mark.parametrize("columns", [60, 80])
def test_on_a_narrow_terminal_what_is_there_and_needed_stays(columns: int) -> None:
    head, *lines, _ = shown(columns)
    assert {"queue", "backlog", "slots", "needed"} <= set(head.split())
    assert max(map(len, (head, *lines))) <= columns

"""``python -m headrace.testing.exhaustive``: explore the small model, print the number of states of each scene."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from headrace.testing.exhaustive.scenes import SCENES
from headrace.testing.exhaustive.search import Result, explore, timeline

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Explore scenes; return 1 if something did not hold."""
    parser = argparse.ArgumentParser(prog="headrace.testing.exhaustive", description=__doc__)
    parser.add_argument("scenes", nargs="*", metavar="SCENE", help=f"all by default: {', '.join(SCENES)}")
    parser.add_argument("--faults", type=int, help="how many faults and actions of people, instead of the scene's own")
    parser.add_argument("--quick", action="store_true", help="as many as in make test")
    parser.add_argument("--seconds", type=float, help="stop a scene after so long")
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.scenes if name not in SCENES]:
        parser.error(f"no scene {unknown[0]!r}: there are {', '.join(SCENES)}")
    _say(f"{'scene':20}{'faults':>7}{'states':>10}{'steps':>11}{'depth':>7}{'seconds':>9}")
    failed = False
    for name in given.scenes or SCENES:
        scene = SCENES[name]
        faults = given.faults if given.faults is not None else scene.quick if given.quick else scene.faults
        result = explore(scene, faults, seconds=given.seconds)
        _say(_row(result))
        if result.found is not None:
            failed = True
            _say(f"\n{result.found.what}\n\nafter:", *timeline(scene, result.found.path), "")
    return int(failed)


def _say(*lines: str) -> None:
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _row(result: Result) -> str:
    counts = f"{result.scene.name:20}{result.faults:>7}{result.states:>10,}{result.steps:>11,}{result.depth:>7}"
    return f"{counts}{result.seconds:>9.1f}{'' if result.whole or result.found else '  (not all)'}"


if __name__ == "__main__":
    sys.exit(main())

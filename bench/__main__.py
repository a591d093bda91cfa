"""``python -m bench``: run the benchmark and print what came of it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import plan as plans
from bench.chart import svg
from bench.children import BrokenDown, ask
from bench.flat import flat, flat_lines
from bench.harness import measure
from bench.machine import describe
from bench.plan import LABELS, MEASURES, SIDES, Plan
from bench.report import document, lines


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and report; 1 if a side broke down."""
    args = _parser().parse_args(argv)
    plan = plans.quick() if args.quick else plans.default()
    plan = replace(
        plan,
        repeat=args.repeat or plan.repeat,
        sides=tuple(side for side in SIDES if side in args.only),
        measures=tuple(what for what in MEASURES if what in args.measure),
    )
    home = Path(args.dir)
    home.mkdir(parents=True, exist_ok=True)
    try:
        with TemporaryDirectory(prefix="bench-", dir=home) as directory:
            return _flat(plan, Path(directory)) if args.flat else _run(plan, Path(directory), args)
    except BrokenDown as error:
        print(f"\nbench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _run(plan: Plan, home: Path, args: argparse.Namespace) -> int:
    facts = describe(home) | {LABELS[side]: ask(side, home / f"{side}.db", "settings") for side in plan.sides}
    figures = measure(plan, home)
    print("\n".join(lines(plan, figures, facts)))
    if args.json:
        text = json.dumps(document(plan, figures, facts), indent=2, ensure_ascii=False)
        Path(args.json).write_text(text + "\n", encoding="utf-8")
    if args.svg:
        Path(args.svg).write_text(svg(plan, figures), encoding="utf-8")
    return 0


def _flat(plan: Plan, home: Path) -> int:
    facts = describe(home)
    rates = flat(plan, home)
    print("\n".join([*(f"{name:<8} {fact}" for name, fact in facts.items()), "", *flat_lines(rates)]))
    return 0


def _names(known: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        names = tuple(name.strip() for name in text.split(","))
        if strangers := set(names) - set(known):
            raise argparse.ArgumentTypeError(f"{', '.join(sorted(strangers))}: choose from {', '.join(known)}")
        return names

    return parse


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__, allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="few jobs, one repeat: a look, not a measurement")
    parser.add_argument("--repeat", type=int, metavar="N", help="how often each figure is measured (3; quick: 1)")
    parser.add_argument("--only", type=_names(SIDES), default=SIDES, metavar="SIDES", help=f"of {','.join(SIDES)}")
    parser.add_argument(
        "--measure", type=_names(MEASURES), default=MEASURES, metavar="WHAT", help=f"of {','.join(MEASURES)}"
    )
    parser.add_argument("--flat", action="store_true", help="headrace's drain with a full store, instead of the rest")
    parser.add_argument("--json", metavar="FILE", help="write every sample")
    parser.add_argument("--svg", metavar="FILE", help="draw the rates")
    parser.add_argument("--dir", default="build", metavar="DIR", help="where the stores lie for the time being (build)")
    return parser


if __name__ == "__main__":
    sys.exit(main())

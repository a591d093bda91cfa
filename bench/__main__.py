"""``python -m bench``: run the benchmark and print what came of it."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench import docs
from bench import plan as plans
from bench.chart import svg
from bench.children import BrokenDown, ask
from bench.churn import churn, churn_lines
from bench.dashboard import dashboards, dashboards_lines
from bench.endpoints import endpoints, endpoints_lines
from bench.find import find, find_lines
from bench.flat import flat, flat_lines
from bench.harness import measure
from bench.hub import hub, hub_lines
from bench.idle import PRELOAD, idle, idle_lines
from bench.limits import limits, limits_lines
from bench.machine import AWAKE, awake, describe
from bench.plan import ENGINES, LABELS, MEASURES, RIVALS, SIDES, STATES, EngineName, Plan, SideName
from bench.programs import Missing, program
from bench.recovery import recovery, recovery_lines
from bench.recovery_hub import hub_recovery, hub_recovery_lines
from bench.remote import remote, remote_lines
from bench.remote_crowd import crowd, crowd_lines
from bench.report import document, facts_lines, lines, page
from bench.stores import Databases, Files, Stores, postgres


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and report; 1 if a side broke down."""
    parser = _parser()
    args = parser.parse_args(argv)
    engines: tuple[EngineName, ...] = ENGINES if args.engine == "all" else (args.engine,)
    chosen = [_plan(parser, args, engine) for engine in engines]
    kept: dict[str, Any] = {}
    home = Path(args.dir).resolve()
    home.mkdir(parents=True, exist_ok=True)
    try:
        for plan in chosen:
            with TemporaryDirectory(prefix="bench-", dir=home) as directory:
                Path(directory).chmod(0o755)  # a server does not run as root, and must get there
                kept[plan.engine] = _run(plan, Path(directory), args)
    except BrokenDown as error:
        print(f"\nbench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    broken = [one for part in kept.values() for one in part.get("broken", [])]
    if args.json:
        whole = kept if len(kept) > 1 else next(iter(kept.values()))
        Path(args.json).write_text(json.dumps(whole, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return 1 if broken else 0


def _run(plan: Plan, home: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Do what is asked for; the samples."""
    mode = args.mode or "figures"
    # Autovacuum comes when it likes; where its work is not part of the question, it would only add noise.
    settings = {
        "churn": {"autovacuum_naptime": "1s"},
        "flat": {"autovacuum": "off"},
        "limits": {},
        "figures": {"autovacuum": "off"},
        "idle": PRELOAD,
        "recovery": {},
        "find": {},
        "hub": {},
        "endpoints": {},
        "dashboard": {},
        "remote": {"autovacuum": "off"},
    }
    with (
        _stores(plan.engine, home, args.dsn, settings["figures" if mode == "states" else mode]) as stores,
        awake() if args.awake else nullcontext(),
    ):
        facts = describe(home) | ({"processors": AWAKE} if args.awake else {}) | stores.facts()
        if mode in ("figures", "states"):
            return _figures(plan, stores, facts, args)
        said, kept = _special(mode, plan, stores, args)
        print("\n".join([*facts_lines(facts), "", *said]))
        if args.docs:
            section = f"{plan.engine}-{mode}"
            docs.write(docs.PAGE, section, [docs.today(), "", "```text", *facts_lines(facts), "", *said, "```"])
        return {"engine": plan.engine, "facts": facts, mode: kept}


def _figures(plan: Plan, stores: Stores, facts: dict[str, str], args: argparse.Namespace) -> dict[str, Any]:
    with stores.fresh() as store:
        plan, said = _present(plan, store)
    facts |= said
    figures = measure(plan, stores)
    print("\n".join(lines(plan, figures, facts)))
    picture = svg(plan, figures)
    if args.svg:
        Path(args.svg).write_text(picture, encoding="utf-8")
    if args.docs:
        section = plan.engine + ("-states" if args.mode == "states" else "")
        image = docs.IMAGES / f"benchmarks{section.removeprefix('sqlite').replace('postgres', '-postgres')}.svg"
        image.write_text(picture, encoding="utf-8")
        shown = [f"![jobs a second by side](images/{image.name})", "", *page(plan, figures, facts)]
        docs.write(docs.PAGE, section, [docs.today(), "", *shown])
    return document(plan, figures, facts)


def _present(plan: Plan, store: str) -> tuple[Plan, dict[str, str]]:
    """The plan without those who cannot run here, and what there is to know of each."""
    facts, there = {}, list[SideName]()
    for side in plan.sides:
        try:
            program(plan.engine, side, "client")
        except Missing as why:
            facts[LABELS[side]] = f"not run: {why}"
        else:
            facts[LABELS[side]] = str(ask(plan.engine, side, store, "settings"))
            there.append(side)
    return replace(plan, sides=tuple(there)), facts


def _special(mode: str, plan: Plan, stores: Stores, args: argparse.Namespace) -> tuple[list[str], Any]:
    """A question of its own: what to print, and the samples."""
    if mode == "flat":
        rates = flat(plan, stores)
        return list(flat_lines(rates)), [asdict(case) | {"samples": found} for case, found in rates.items()]
    if mode == "limits":
        found_by = limits(plan, stores, quick=args.quick)
        return list(limits_lines(found_by)), [asdict(case) | {"samples": found} for case, found in found_by.items()]
    if mode == "recovery":
        turns = args.repeat or (2 if args.quick else 20)
        behind = hub_recovery(stores, turns=turns) if "headrace" in plan.sides else {}
        told = list(hub_recovery_lines(plan.engine, behind)) if behind else []
        kept = {case.name: asdict(found) for case, found in behind.items()}
        if args.hubs:
            return told, kept
        ours, theirs = recovery(plan.engine, stores, plan.sides, turns=turns)
        kept |= {case.name: asdict(found) for case, found in ours.items()}
        kept |= {side: asdict(found) for side, found in theirs.items()}
        return [*recovery_lines(plan.engine, ours, theirs), *told], kept
    if mode == "hub":
        figures = hub(stores, quick=args.quick, repeat=args.repeat or (1 if args.quick else 3))
        return list(hub_lines(figures)), asdict(figures)
    if mode == "dashboard":
        looked = dashboards(plan.engine, stores, quick=args.quick, repeat=args.repeat or (1 if args.quick else 5))
        return list(dashboards_lines(looked)), asdict(looked)
    if mode == "remote":
        turns = args.repeat or (1 if args.quick else 3)
        far, many = (
            remote(plan.engine, stores, quick=args.quick, repeat=turns),
            crowd(stores, quick=args.quick, repeat=turns),
        )
        return [*remote_lines(far), *crowd_lines(many)], asdict(far) | {"crowd": asdict(many)}
    if mode == "endpoints":
        asked = endpoints(stores, quick=args.quick, repeat=args.repeat or (1 if args.quick else 3))
        return list(endpoints_lines(asked)), asdict(asked)
    if mode == "find":
        pages, failures = find(plan.engine, stores, 20_000 if args.quick else 1_000_000, args.repeat or 5)
        kept = {case.name: asdict(found) for case, found in pages.items()}
        return list(find_lines(pages, failures)), kept | {"failures": failures}
    assert isinstance(stores, Databases)
    if mode == "churn":
        sizes = churn(stores, 100_000 if args.quick else 1_000_000)
        return list(churn_lines(sizes)), [asdict(one) for one in sizes]
    with stores.fresh() as store:
        plan, _ = _present(plan, store)
    workers = [side for side in plan.sides if side != "raw"]
    what, found = idle(stores, workers, 15 if args.quick else 60)
    return list(idle_lines(what, found)), {"counted": what, "per_minute": found}


@contextmanager
def _stores(engine: EngineName, home: Path, dsn: str | None, settings: dict[str, str]) -> Iterator[Stores]:
    if engine == "sqlite":
        yield Files(home)
    else:
        with postgres(home, dsn, **settings) as databases:
            yield databases


def _plan(parser: argparse.ArgumentParser, args: argparse.Namespace, engine: EngineName) -> Plan:
    plan = plans.quick(engine) if args.quick else plans.default(engine)
    if engine == "sqlite" and args.mode in ("states", "churn", "idle"):
        parser.error(f"--{args.mode} is a question to PostgreSQL: --engine postgres")
    wanted = _names(parser, "--only", args.only, SIDES[engine])
    measures = _names(parser, "--measure", args.measure, (*MEASURES, *(STATES if engine == "postgres" else ())))
    if args.mode == "states":
        measures, wanted = measures or STATES, wanted or RIVALS
    return replace(
        plan,
        repeat=args.repeat or plan.repeat,
        sides=tuple(side for side in plan.sides if not wanted or side in wanted),
        measures=tuple(what for what in (*MEASURES, *STATES) if what in (measures or MEASURES)),
    )


def _names(parser: argparse.ArgumentParser, flag: str, text: str | None, known: Sequence[str]) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",")) if text else ()
    if strangers := set(names) - set(known):
        parser.error(f"{flag} {', '.join(sorted(strangers))}: choose from {', '.join(known)}")
    return names


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__, allow_abbrev=False)
    parser.add_argument("--engine", choices=(*ENGINES, "all"), default="sqlite", help="what the jobs lie in (sqlite)")
    parser.add_argument("--quick", action="store_true", help="few jobs, one repeat: a look, not a measurement")
    parser.add_argument("--repeat", type=int, metavar="N", help="how often each figure is measured (3; quick: 1)")
    parser.add_argument("--only", metavar="SIDES", help="; ".join(f"{e}: {','.join(SIDES[e])}" for e in ENGINES))
    parser.add_argument(
        "--measure", metavar="WHAT", help=f"of {','.join(MEASURES)}; on postgres {','.join(STATES)} too"
    )
    modes = parser.add_argument_group("other questions, instead of the figures").add_mutually_exclusive_group()
    for name, what in {
        "states": "drains by what PostgreSQL's planner knows of the tables",
        "flat": "headrace's drain with a full or finely divided store",
        "find": "how long a page of headrace's jobs takes, by each filter, with a million of them",
        "limits": "headrace's claims where something is limited",
        "churn": "whether headrace's tables grow while a million jobs come and go (postgres)",
        "idle": "what an idle worker asks of PostgreSQL in a minute",
        "recovery": "how soon a job runs again whose worker was killed",
        "remote": "a worker by the remote engine, through a hub, beside the same on the database; 200 by leases",
        "endpoints": "a FastAPI route that is a job beside one that only validates; what Prefer: wait adds",
        "dashboard": "each page of the dashboard with a million jobs stored, and a drain beside five of them",
        "hub": "headrace's hub: submits over HTTP, a thousand who listen, ten thousand who say nothing",
    }.items():
        modes.add_argument(f"--{name}", dest="mode", action="store_const", const=name, help=what)
    parser.add_argument("--hubs", action="store_true", help="of --recovery: only what is behind a hub")
    parser.add_argument("--dsn", metavar="URL", help="a PostgreSQL server to use instead of starting one")
    parser.add_argument("--awake", action="store_true", help="keep the processors from sleeping, for all sides (Linux)")
    parser.add_argument("--docs", action="store_true", help="put table and chart into docs/benchmarks.md")
    parser.add_argument("--json", metavar="FILE", help="write every sample")
    parser.add_argument("--svg", metavar="FILE", help="draw the rates")
    parser.add_argument("--dir", default="build", metavar="DIR", help="where the stores lie for the time being (build)")
    return parser


if __name__ == "__main__":
    # Whoever ends the run ends its server and its workers too, even one that is halted at the moment.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())

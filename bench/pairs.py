"""Two versions of headrace in turns: what each costs in processor time, and how fast it is.

``python -m bench.pairs TREE --measure latency,drain``: this tree against another one, such as a git worktree of an
earlier commit. Each is driven by its own programs. What disturbs the machine disturbs both, so only the
ratios within pairs count, of which the median is told: above 1, this tree is the better one.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil  # type: ignore[import-untyped]

from bench.children import TREE, ask, ask_and_time, crew
from bench.draining import SETTLE
from bench.hub import CLIENTS, SUBMIT_ONE, hub_process, run
from bench.hub_load import pump
from bench.plan import ENGINES, EngineName
from bench.programs import ROOT
from bench.remote_crowd import remote_workers
from bench.stores import Files, Stores, postgres

MEASURES = {
    "one": 1_500,
    "sync": 1_500,
    "concurrent": 10_000,
    "bulk": 30_000,
    "drain": 30_000,
    "latency": 200,
    "hub": 5_000,
    "remote": 3_000,
}
"""What can be measured, and by how many jobs."""
PER_SECOND = 50.0
REMOTE_WORKERS = 20

Figures = dict[str, float]
"""``rate`` in jobs a second, or ``p50`` in ms; processor time in µs a job of client, worker, hub and server."""
WARM_UP = 10
"""Of so many requests or jobs one more is made before a hub is measured: its first ones are slower."""


def main() -> int:
    """Measure and tell."""
    parser = argparse.ArgumentParser(prog="bench.pairs", description=__doc__, allow_abbrev=False)
    parser.add_argument("tree", type=Path, help="where the other version is checked out")
    parser.add_argument("--engine", choices=ENGINES, default="sqlite")
    parser.add_argument("--measure", default="latency", help=f"of {','.join(MEASURES)} (latency)")
    parser.add_argument("--pairs", type=int, default=10, metavar="N", help="how many of each (10)")
    parser.add_argument("--jobs", type=int, metavar="N", help="how many jobs each takes")
    parser.add_argument("--dir", default="build", help="where the stores lie for the time being (build)")
    args = parser.parse_args()
    trees = {"here": ROOT, "there": args.tree.resolve()}
    measures = args.measure.split(",")
    if unknown := set(measures) - set(MEASURES):
        parser.error(f"--measure {', '.join(sorted(unknown))}: choose from {', '.join(MEASURES)}")
    Path(args.dir).mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="pairs-", dir=Path(args.dir).resolve()) as home:
        Path(home).chmod(0o755)  # a server does not run as root, and must get there
        with _stores(args.engine, Path(home)) as stores:
            for what in measures:
                jobs, found = args.jobs or MEASURES[what], {name: list[Figures]() for name in trees}
                for turn in range(args.pairs):
                    for name in sorted(trees, reverse=bool(turn % 2)):
                        os.environ |= {"PYTHONPATH": str(trees[name] / "src"), TREE: str(trees[name])}
                        with stores.fresh() as store:
                            found[name].append(_measure(args.engine, store, what, jobs))
                _tell(f"{args.engine} {what}", found["here"], found["there"])
    return 0


@contextmanager
def _stores(engine: EngineName, home: Path) -> Iterator[Stores]:
    if engine == "sqlite":
        yield Files(home)
    else:
        with postgres(home, None, autovacuum="off") as databases:
            yield databases


def _measure(engine: EngineName, store: str, what: str, jobs: int) -> Figures:
    ask(engine, "headrace", store, "submit", "fill", jobs if what == "drain" else 0, 0)  # which makes the store
    if what in ("hub", "remote"):
        return _measure_hub(engine, store, what, jobs)
    if what not in ("drain", "latency"):
        server = _server_time()
        seconds, spent = ask_and_time(engine, "headrace", store, "submit", what, jobs, 0)
        return _figures(jobs, client=spent, server=_server_time() - server) | {"rate": jobs / seconds}
    with crew(engine, "headrace", store) as workers:
        (worker,) = workers.children
        workers.start()
        done, began, client = 0, 0.0, 0.0
        if what == "drain":
            done, began = workers.progress()  # how long a worker takes to start does not count
        else:
            time.sleep(SETTLE)
        first, spent, server = done, worker.cpu(), _server_time()
        if what == "latency":
            _, client = ask_and_time(engine, "headrace", store, "submit", "paced", jobs, PER_SECOND)
        ended = began
        while done < jobs:
            done, ended = workers.progress()
        figures = _figures(jobs - first, client=client, worker=worker.cpu() - spent, server=_server_time() - server)
        waits = sorted(workers.stop())
    if what == "latency":
        return figures | {"p50": waits[len(waits) // 2] * 1000}
    return figures | {"rate": (jobs - first) / max(ended - began, 1e-6)}


def _measure_hub(engine: EngineName, store: str, what: str, jobs: int) -> Figures:
    """Submits over HTTP, or jobs that workers behind the hub claim and complete."""
    if what == "remote":
        ask(engine, "headrace", store, "submit", "fill", jobs + jobs // WARM_UP, 0)
    with hub_process(store, "--no-access-log", "--no-webhooks") as (address, process), ExitStack() as stack:

        def submit(count: int) -> float:
            return run(pump(address, iter([SUBMIT_ONE] * count), CLIENTS))[0]

        def finish(count: int) -> float:
            return float(work(count)["seconds"])

        if what == "remote":
            work = stack.enter_context(remote_workers(address, REMOTE_WORKERS))
        do = submit if what == "hub" else finish
        do(jobs // WARM_UP)
        spent, server = _time_of(process), _server_time()
        seconds = do(jobs)
        figures = _figures(jobs, hub=_time_of(process) - spent, server=_server_time() - server)
        return figures | {"rate": jobs / seconds}


def _time_of(process: psutil.Process) -> float:
    return float(sum(process.cpu_times()[:2]))


def _figures(jobs: int, **seconds: float) -> Figures:
    return {name: 1e6 * spent / jobs for name, spent in seconds.items() if spent}


def _server_time() -> float:
    """The processor time of all servers that this process has started, and of their children, those that ended too."""
    total = 0.0
    for one in psutil.Process().children(recursive=True):
        try:
            if one.name() == "postgres":
                times = one.cpu_times()
                total += times.user + times.system
        except psutil.NoSuchProcess:
            continue
    return total


def _tell(what: str, here: list[Figures], there: list[Figures]) -> None:
    print(f"{what}, {len(here)} pairs")
    for name in here[0]:
        pairs = [
            (one[name], other[name]) for one, other in zip(here, there, strict=True) if name in one and name in other
        ]
        ratios = [one / other if name == "rate" else other / one for one, other in pairs]
        mine, theirs = (statistics.median(values) for values in zip(*pairs, strict=True))
        unit = {"rate": "jobs/s", "p50": "ms"}.get(name, "µs a job")
        print(
            f"  {name:7} {mine:10,.1f} against {theirs:10,.1f} {unit:8} {statistics.median(ratios):6.3f}×", flush=True
        )


if __name__ == "__main__":
    sys.exit(main())

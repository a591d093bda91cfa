"""A worker process of one side: ``python -m bench.worker ENGINE SIDE STORE THREADS``; the harness starts it."""

from __future__ import annotations

import sys
from typing import cast

from bench.plan import EngineName, SideName
from bench.sides import load

if __name__ == "__main__":
    engine, side, store, threads = sys.argv[1:]
    load(cast("EngineName", engine), cast("SideName", side)).work(store, int(threads))

"""A worker process of one side: ``python -m bench.worker SIDE PATH COUNT THREADS``; the harness starts it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import cast

from bench.plan import SideName
from bench.sides import load

if __name__ == "__main__":
    side, path, count, threads = sys.argv[1:]
    load(cast("SideName", side)).work(Path(path), int(count), int(threads))

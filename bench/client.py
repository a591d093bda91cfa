"""A process of one side that is no worker, started by the harness.

``python -m bench.client SIDE PATH submit HOW COUNT PER_SECOND``, ``… remaining`` or ``… settings``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import cast

from bench.plan import SideName
from bench.sides import How, load
from bench.wire import say

if __name__ == "__main__":
    side, path, verb, *rest = sys.argv[1:]
    peer, store = load(cast("SideName", side)), Path(path)
    if verb == "submit":
        how, count, per_second = rest
        say(answer=peer.submit(store, cast("How", how), int(count), float(per_second)))
    else:
        say(answer=getattr(peer, verb)(store))

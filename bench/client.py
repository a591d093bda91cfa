"""A process of one side that is no worker, started by the harness.

``python -m bench.client ENGINE SIDE STORE submit HOW COUNT PER_SECOND``, ``… remaining`` or ``… settings``.
"""

from __future__ import annotations

import sys
from typing import cast

from bench.plan import EngineName, SideName
from bench.sides import How, load
from bench.wire import say

if __name__ == "__main__":
    engine, side, store, verb, *rest = sys.argv[1:]
    peer = load(cast("EngineName", engine), cast("SideName", side))
    if verb == "submit":
        how, count, per_second = rest
        say(answer=peer.submit(store, cast("How", how), int(count), float(per_second)))
    else:
        say(answer=getattr(peer, verb)(store))

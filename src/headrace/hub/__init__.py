"""The hub: HTTP and WebSocket for people, programs and workers that never see the store.

Begin with ``hub`` (the application) and ``operations`` (the table of all that it serves). May import ``http``,
``dashboard``, ``contrib.prometheus``, ``app`` and below.
"""

from __future__ import annotations

from headrace.errors import MissingExtra

try:
    import starlette  # noqa: F401
    import uvicorn  # noqa: F401
    import websockets  # noqa: F401  # by which uvicorn serves sockets
except ModuleNotFoundError as error:
    raise MissingExtra("headrace.hub", str(error.name), "hub") from None

from headrace.hub.hub import Hub
from headrace.hub.options import HubOptions

__all__ = ["Hub", "HubOptions"]

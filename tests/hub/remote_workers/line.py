"""``python line.py ADDRESS``: a socket to a hub in a process of its own, which a test speaks through and may kill.

Each line of stdin is a message, and each message that comes is a line of stdout. A line that begins with ``!`` is the
last one: the process kills itself as soon as the kernel has taken the message, and reads no answer.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect


def main(address: str) -> None:
    """Speak until stdin ends or the hub hangs up."""
    with connect(address, proxy=None, open_timeout=60) as connection:
        threading.Thread(target=_hear, args=(connection,), daemon=True).start()
        for line in sys.stdin:
            last = line.startswith("!")
            connection.send(line.removeprefix("!").strip())
            if last:
                os.kill(os.getpid(), signal.SIGKILL)


def _hear(connection: ClientConnection) -> None:
    try:
        for message in connection:
            sys.stdout.write(f"{message!s}\n")
            sys.stdout.flush()
    except ConnectionClosed:
        pass
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1])

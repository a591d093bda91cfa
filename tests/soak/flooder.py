"""A customer whose key sends bulk after bulk of names of tasks that nobody has: ``flooder ADDRESS KEY FILE``.

It does so while the file is there, until it is killed; it comes back at once, or a tenth of a second later if it must
wait. After each bulk it says how many were answered how, and how many jobs were created and refused.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

NAMES = 10_500


def main(address: str, key: str, file: str) -> None:
    """Flood until killed."""
    where, seen = urlsplit(address), Counter[str]()
    headers = {"authorization": f"Bearer {key}", "content-type": "application/x-ndjson"}
    while True:
        turn = seen["200"]
        lines = b"".join(b'{"task":"%d-%d","payload":{}}\n' % (turn, n) for n in range(NAMES))
        while seen["200"] == turn:
            while not Path(file).exists():
                time.sleep(0.02)
            connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=60)
            connection.request("POST", "/api/jobs/bulk", lines, headers)
            answer = connection.getresponse()
            text = answer.read()
            connection.close()
            seen[str(answer.status)] += 1
            if answer.status == 200:
                seen.update(json.loads(line)["verdict"] for line in text.splitlines())
            print(json.dumps(seen), flush=True)
            if answer.status != 200:
                time.sleep(0.1)


if __name__ == "__main__":
    main(*sys.argv[1:])

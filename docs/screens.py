"""Makes the pictures of the dashboard in ``docs/images/dashboard``, in a real browser; run by ``make docs``.

Every page, light and dark, on a laptop and on a phone. They are made anew only if what draws them has changed since, or
with ``--again``.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
from base64 import b64decode, b64encode
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))  # for the browser of the tests, and the scene

from docs.scene import acted_out, served  # noqa: E402  # behind the path they are found by
from tests.dashboard.walk import looks, walk  # noqa: E402
from tests.support.screens.browser import browsing  # noqa: E402

IMAGES = HERE / "images" / "dashboard"
DASHBOARD = HERE.parent / "src" / "headrace" / "dashboard"
MADE_OF = "made-of.txt"

SMALLER = """async (png) => {
  const image = new Image();
  image.src = `data:image/png;base64,${png}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  Object.assign(canvas, {width: image.width, height: image.height}).getContext("2d").drawImage(image, 0, 0);
  return canvas.toDataURL("image/webp", 0.86).split(",")[1];
}"""
"""A third of the bytes, and letters are as sharp."""


def fingerprint() -> str:
    """Of what draws the pages."""
    files = [*DASHBOARD.rglob("*.html"), *DASHBOARD.rglob("*.css"), *DASHBOARD.rglob("*.js"), HERE / "scene.py"]
    files.append(HERE.parent / "tests" / "dashboard" / "walk.py")
    return hashlib.sha256(b"".join(file.read_bytes() for file in sorted(files))).hexdigest()[:16]


def stale() -> bool:
    """Whether pictures are missing, or were made of other pages."""
    made = IMAGES / MADE_OF
    return not made.exists() or made.read_text(encoding="utf-8").strip() != fingerprint()


async def main() -> None:
    """Make them all."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    async with served("memory://") as (app, address), browsing() as browser:
        await acted_out(app)
        plain = await browser.new_page()
        async for stop in walk(browser, app, address, [], looks()):
            shot = b64encode(await stop.page.screenshot()).decode()
            picture = b64decode(await plain.evaluate(SMALLER, shot))
            (IMAGES / f"{stop.label}.webp").write_bytes(picture)
    (IMAGES / MADE_OF).write_text(fingerprint() + "\n", encoding="utf-8")


if __name__ == "__main__":
    if "--again" in sys.argv[1:] or stale():
        asyncio.run(main())

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
from headrace import App  # noqa: E402
from tests.support.browser import browsing  # noqa: E402

IMAGES = HERE / "images" / "dashboard"
DASHBOARD = HERE.parent / "src" / "headrace" / "dashboard"
MADE_OF = "made-of.txt"

SIZES = {"laptop": (1280, 800), "phone": (390, 844)}
SCHEMES = ("light", "dark")
PAGES = (
    *("overview", "jobs", "job", "running", "family", "dead", "queues", "queue", "limits", "limit"),
    *("tasks", "task", "schedules", "schedule", "batches", "batch", "workers", "worker"),
)
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
    return hashlib.sha256(b"".join(file.read_bytes() for file in sorted(files))).hexdigest()[:16]


def stale() -> bool:
    """Whether pictures are missing, or were made of other pages."""
    made = IMAGES / MADE_OF
    return not made.exists() or made.read_text(encoding="utf-8").strip() != fingerprint()


async def paths(app: App) -> dict[str, str]:
    """Where each page is."""

    async def newest(task: str, **filters: str) -> str:
        return str((await app.jobs(task=task, **filters)).items[0].id)  # type: ignore[arg-type]  # all of them text

    shaky = (await app.jobs(task="send_mail", text="shaky")).items[-1]
    batch = (await app.batches()).items[0]
    worker = next(row for row in await app.workers() if row.info.pid != 4711)
    return {
        **{name: f"/{name}" for name in PAGES if name.endswith("s") and name != "batches"},
        "overview": "/",
        "dead": "/dead",
        "batches": "/batches",
        "job": f"/jobs/{shaky.id}",
        "running": f"/jobs/{await newest('transcode')}",
        "family": f"/jobs/{await newest('build_report')}",
        "queue": "/queues/mail",
        "limit": "/limits/charge_card",
        "task": "/tasks/resize_image",
        "schedule": "/schedules/nightly_backup",
        "batch": f"/batches/{batch.id}",
        "worker": f"/workers/{worker.info.id}",
    }


async def main() -> None:
    """Make them all."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    async with served("memory://") as (app, address), browsing() as browser:
        await acted_out(app)
        places, plain = await paths(app), await browser.new_page()
        for scheme in SCHEMES:
            for size, (width, height) in SIZES.items():
                page = await browser.new_page(
                    viewport={"width": width, "height": height},
                    color_scheme="dark" if scheme == "dark" else "light",
                    timezone_id="Europe/Berlin",
                    locale="en-GB",
                )
                for name in PAGES:
                    await page.goto(address + places[name])
                    await page.wait_for_function("document.documentElement.classList.contains('scripted')")
                    shot = b64encode(await page.screenshot()).decode()
                    picture = b64decode(await plain.evaluate(SMALLER, shot))
                    (IMAGES / f"{name}-{scheme}-{size}.webp").write_bytes(picture)
                await page.close()
    (IMAGES / MADE_OF).write_text(fingerprint() + "\n", encoding="utf-8")


if __name__ == "__main__":
    if "--again" in sys.argv[1:] or stale():
        asyncio.run(main())

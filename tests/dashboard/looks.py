"""What can be wrong with how a page looks."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import axe_playwright_python  # type: ignore[import-untyped]  # it has none
from playwright.async_api import Page

__all__ = ["axe_faults", "sticking_out"]

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
FAULTS = """async () => {
  const found = await axe.run(document, {resultTypes: ["violations"]});
  return found.violations.map((one) => `${one.id}: ${one.help}: ${one.nodes.map((node) => node.target).join(" | ")}`);
}"""
OUT = """() => {
  // On a phone the window grows with what sticks out; what it was laid out for does not.
  const width = document.documentElement.clientWidth, over = document.documentElement.scrollWidth - width;
  const beyond = (one) => one.checkVisibility() && one.getBoundingClientRect().right > width + 1;
  const told = (one) => one.outerHTML.slice(0, 100);
  const found = [...document.querySelectorAll("button, input, select, textarea, nav a")].filter(beyond)
    .map((one) => `cannot be reached: ${told(one)}`);
  const wide = [...document.querySelectorAll("main *")].filter(beyond).slice(0, 3).map(told);
  if (over > 0) found.push(`sticks out by ${over} px: ${wide.join(" | ")}`);
  return found;
}"""


async def axe_faults(page: Page) -> list[str]:
    """Where the page, as it is now, is hard to use for people who cannot see, or see less."""
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(AXE)
    return cast(list[str], await page.evaluate(FAULTS))


async def sticking_out(page: Page) -> list[str]:
    """What is beyond the edge of the window: anything that makes the page wider, and what one presses or fills in."""
    return cast(list[str], await page.evaluate(OUT))

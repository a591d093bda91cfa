"""What can be wrong with how a page looks."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import axe_playwright_python  # type: ignore[import-untyped]  # it has none
from playwright.async_api import Page

__all__ = ["axe_faults", "geometry_faults", "sticking_out"]

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

GEOMETRY = """() => {
  const faults = [], told = (one) => one.outerHTML.slice(0, 90), near = (one, two) => Math.abs(one - two) <= 1.5;
  const shown = (one) => one.checkVisibility({visibilityProperty: true}) && one.getClientRects().length > 0;
  const ink = (one) => {
    const range = document.createRange();
    range.selectNodeContents(one);
    return range.getBoundingClientRect();
  };

  // Numbers, and whatever else stands in a column, begin or end where their heading does.
  for (const table of document.querySelectorAll("main table")) {
    const heads = [...table.querySelectorAll("thead th")];
    if (!heads.some(shown) || getComputedStyle(table.tHead).position === "absolute") continue;
    heads.forEach((head, column) => {
      if (!shown(head) || !head.textContent.trim() || head.querySelector(".unseen, input")) return;
      const right = getComputedStyle(head).textAlign === "right", edge = right ? ink(head).right : ink(head).left;
      for (const row of table.tBodies[0].rows) {
        const cell = row.cells[column];
        if (!cell || cell.colSpan > 1 || !shown(cell) || !cell.textContent.trim()) continue;
        if (cell.querySelector(".tag, button, ul, details")) continue;  // with a padding of their own
        const at = right ? ink(cell).right : ink(cell).left;
        if (!near(at, edge)) faults.push(`${at - edge} px from its heading "${head.textContent}": ${told(cell)}`);
        const number = /^[0-9][0-9,.]*( %)?$/.test(cell.textContent.trim());
        if (number && !right && cell.cellIndex > 0)
          faults.push(`a number on the left, below "${head.textContent}": ${told(cell)}`);
      }
    });
  }

  // A bar is as thick as its track.
  for (const bar of document.querySelectorAll("main svg.level, main svg.done")) {
    if (!shown(bar)) continue;
    const high = bar.getBoundingClientRect().height;
    for (const part of bar.querySelectorAll("rect")) {
      const box = part.getBoundingClientRect();
      if (box.width > 0 && !near(box.height, high)) faults.push(`thinner than its track: ${told(part)}`);
    }
  }

  // What has the colour of links, or a line below it, can be followed or pressed.
  const probe = document.body.appendChild(document.createElement("i"));
  probe.style.color = "var(--accent)";
  const accent = getComputedStyle(probe).color;
  probe.remove();
  for (const one of document.querySelectorAll("main *")) {
    if (one.closest("a[href], button, summary, label, svg") || !shown(one)) continue;
    if (![...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim())) continue;
    const style = getComputedStyle(one);
    if (style.color === accent || style.textDecorationLine.includes("underline"))
      faults.push(`looks like a link, and is none: ${told(one)}`);
  }

  // The columns of the overview end together, and no panel in them is mostly empty.
  for (const panel of document.querySelectorAll(".glance > div > .panel")) {
    const rest = panel.getBoundingClientRect().bottom - panel.lastElementChild.getBoundingClientRect().bottom;
    if (rest > 24) faults.push(`${rest} px of nothing in ${told(panel)}`);
  }
  const columns = [...document.querySelectorAll(".glance > div")];
  const [one, other] = columns.map((column) => column.lastElementChild.getBoundingClientRect());
  if (other && one.left !== other.left && !near(one.bottom, other.bottom)) faults.push("the columns end apart");
  return faults;
}"""


async def axe_faults(page: Page) -> list[str]:
    """Where the page, as it is now, is hard to use for people who cannot see, or see less."""
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(AXE)
    return cast(list[str], await page.evaluate(FAULTS))


async def sticking_out(page: Page) -> list[str]:
    """What is beyond the edge of the window: anything that makes the page wider, and what one presses or fills in."""
    return cast(list[str], await page.evaluate(OUT))


async def geometry_faults(page: Page) -> list[str]:
    """What is not where it belongs: numbers beside their headings, thin bars, false links, empty room in panels."""
    return cast(list[str], await page.evaluate(GEOMETRY))

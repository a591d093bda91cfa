"""Every link within the documentation leads somewhere, and every page can be reached."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, anchors, links, name


def targets(page: Path) -> list[tuple[str, Path, str]]:
    """Each link of a page with the file and the heading it means."""
    found = []
    for link in links(page.read_text(encoding="utf-8")):
        path, _, anchor = link.partition("#")
        found.append((link, (page.parent / path).resolve() if path else page, anchor))
    return found


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for link, file, anchor in targets(page):
        if not file.exists() or (anchor and anchor not in anchors(file.read_text(encoding="utf-8"))):
            broken.append(link)
    assert not broken


def test_every_page_is_reached_from_the_readme() -> None:
    reached, left = set[Path](), [ROOT / "README.md"]
    while left:
        page = left.pop()
        if page not in reached:
            reached.add(page)
            left += [file for _, file, _ in targets(page) if file.suffix == ".md" and file.exists()]
    assert [name(page) for page in PAGES if page not in reached] == []


def test_the_index_names_every_guide() -> None:
    listed = {file for _, file, _ in targets(ROOT / "docs" / "index.md")}
    assert [name(guide) for guide in sorted((ROOT / "docs" / "guides").glob("*.md")) if guide not in listed] == []


def test_a_broken_link_is_found() -> None:
    text = (
        "# A page\n[one](two.md#three) and ![image](images/a.svg) and [out](https://example.org)\n```\n[no](x)\n```\n"
    )
    assert list(links(text)) == ["two.md#three", "images/a.svg"]
    assert anchors("# It's `a` page, isn't it?\n") == {"its-a-page-isnt-it"}

"""The site of the documentation: no warning when it is built, no link to nothing, no request to another host."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import CalledProcessError
from threading import Thread
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt
from playwright.async_api import expect

from docs import site
from tests.support.screens.browser import browsing

pytestmark = [pytest.mark.xdist_group("site"), pytest.mark.timeout(240)]  # the site is built once

LOADS = {
    "script": "src",
    "img": "src",
    "link": "href",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
}
"""The elements that make a browser fetch something, each with the attribute that says what."""

COUNTED = frozenset({"h1", "h2", "h3", "h4", "ul", "ol", "li", "tr", "pre", "code", "img"})

_IN_STYLES = re.compile(r"""(?:url\(|@import)\s*["']?([^"')\s]+)""")


@dataclass
class Seen(HTMLParser):
    """What a browser would find in a page."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    counted: Counter[str] = field(default_factory=Counter)
    """The elements of the text, without those of the frame around it."""

    def __post_init__(self) -> None:
        super().__init__()
        self._open = Counter[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = {name: value for name, value in attrs if value is not None}
        self._open[tag] += 1
        if "id" in has:
            self.ids.add(has["id"])
        if tag == "a" and "href" in has:
            self.links.append(has["href"])
        if (load := has.get(LOADS.get(tag, ""))) is not None:
            self.loads.append(load)
        if self._open["article"] and tag in COUNTED and not (tag == "code" and self._open["pre"]):
            self.counted[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        self._open[tag] -= 1


def seen(html: str) -> Seen:
    """What is in a page."""
    found = Seen()
    found.feed(html)
    return found


@dataclass(frozen=True)
class Site:
    """The site as it was built."""

    folder: Path
    pages: dict[Path, Seen]

    def of(self, path: str) -> Seen:
        """The page that was made of a file."""
        page = self.folder / path.removesuffix(".md")
        return self.pages[page.with_suffix(".html") if page.name == "index" else page / "index.html"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("built") / "site"
    site.build(folder)
    pages = {file: seen(file.read_text(encoding="utf-8")) for file in sorted(folder.rglob("*.html"))}
    return Site(folder, {file: page for file, page in pages.items() if file.name != "404.html"})


def leads_nowhere(page: Path, link: str, pages: dict[Path, Seen]) -> bool:
    """Whether what a link of a page means is not on the site."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return False
    file = Path(os.path.normpath(page.parent / unquote(parts.path))) if parts.path else page
    file = file if file.suffix else file / "index.html"
    if file not in pages:
        return not file.is_file()
    return bool(parts.fragment) and unquote(parts.fragment) not in pages[file].ids


def elsewhere(address: str) -> bool:
    """Whether a browser would ask another host for this."""
    return bool(urlsplit(address).netloc)


def test_every_page_is_on_the_site_and_in_its_navigation(built: Site) -> None:
    paths = [path for path in site.files().values() if path.endswith(".md")]
    assert len(paths) > 70
    assert len(built.pages) == len(paths)
    listed = re.findall(r"([\w/-]+\.md)$", site.SETTINGS.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(paths)


def test_every_link_of_the_site_leads_somewhere(built: Site) -> None:
    broken = {
        (page.relative_to(built.folder).as_posix(), link)
        for page, found in built.pages.items()
        for link in {*found.links, *found.loads}
        if leads_nowhere(page, link, built.pages)
    }
    assert broken == set()
    assert sum(len(found.links) for found in built.pages.values()) > 5_000


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "index.html"
    page.write_text('<h2 id="one">One</h2>', encoding="utf-8")
    pages = {page: seen(page.read_text(encoding="utf-8"))}
    links = ["#one", "./", "index.html#one", "https://example.org/#no", "#two", "no/", "index.html#two"]
    assert [link for link in links if leads_nowhere(page, link, pages)] == ["#two", "no/", "index.html#two"]


def test_no_page_loads_anything_from_another_host(built: Site) -> None:
    loads = {load for found in built.pages.values() for load in found.loads}
    for style in built.folder.rglob("*.css"):
        loads.update(_IN_STYLES.findall(style.read_text(encoding="utf-8")))
    assert any(load.endswith(".js") for load in loads)
    assert any(load.endswith(".css") for load in loads)
    assert [load for load in sorted(loads) if elsewhere(load)] == []


def test_what_is_loaded_from_another_host_is_found() -> None:
    found = seen('<link href="//fonts.example/a.css"><script src="x.js"></script><img src="https://example.org/a.png">')
    assert [load for load in found.loads if elsewhere(load)] == ["//fonts.example/a.css", "https://example.org/a.png"]


def test_a_page_of_the_site_has_what_the_page_of_the_repository_has(built: Site) -> None:
    """The two are read by different readers of Markdown, which differ in lists above all."""
    reader = MarkdownIt("commonmark").enable("table")
    for file, path in site.files().items():
        if file.suffix == ".md":
            shown = seen(f"<article>{reader.render(file.read_text(encoding='utf-8'))}</article>")
            assert built.of(path).counted == shown.counted, path


def test_a_link_to_what_is_no_part_of_the_site_is_refused() -> None:
    here = site.ROOT / "docs" / "index.md"
    paths = site.files()
    text = "[code](../src/headrace/app.py)"
    with pytest.raises(ValueError, match=r"docs/index.md links to ../src/headrace/app.py"):
        site.page(text, here, paths)
    assert site.page(f"```python run\n{text}\n```\n", here, paths) == f"```python\n{text}\n```\n"
    assert (
        site.page("[how\nto](../CONTRIBUTING.md#house-rules)", here, paths) == "[how\nto](contributing.md#house-rules)"
    )


def test_a_warning_stops_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "index.md"
    page.write_text("# Start\n\n[nowhere](#nowhere)\n", encoding="utf-8")
    settings = tmp_path / "mkdocs.yml"
    settings.write_text("site_name: x\n", encoding="utf-8")
    monkeypatch.setattr(site, "SETTINGS", settings)
    monkeypatch.setattr(site, "files", lambda: {page: "index.md"})
    with pytest.raises(CalledProcessError) as caught:
        site.build(tmp_path / "site")
    assert "anchor does not exist" in caught.value.stdout
    assert not (tmp_path / "site").exists()


class Quiet(SimpleHTTPRequestHandler):
    """Files, without a line for each."""

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def address(built: Site) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(built.folder))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


async def test_the_search_finds_a_page_and_asks_no_other_host(address: str) -> None:
    asked = list[str]()
    async with browsing() as browser:
        page = await browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        await page.goto(f"{address}guides/retries/")
        await page.keyboard.press("Control+k")
        await page.keyboard.type("dead letter")
        found = page.get_by_role("link", name=re.compile("dead letter", re.IGNORECASE))
        await expect(found.first).to_be_visible(timeout=30_000)
    assert any(url.endswith("search.json") for url in asked)
    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []

"""The site builds without a warning, its links lead somewhere, and it needs nothing else."""

import os
import re
import subprocess
import sys
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

import sparkswarm

ROOT = Path(__file__).resolve().parents[2]
LOADING = {
    ("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("link", "href")
}  # fmt: skip
"""What a browser loads by itself."""


class Page(HTMLParser):
    """What a page loads, what it links to, and where it can be linked to."""

    def __init__(self, path):
        super().__init__()
        self.loads, self.links, self.ids, self.classes = [], [], [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if (tag, name) in LOADING:
                self.loads.append(value)
            elif (tag, name) == ("a", "href"):
                self.links.append(value)
            elif name == "id":
                self.ids.append(value)
            elif name == "class":
                self.classes.update((value or "").split())


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path) for path in sorted(site.rglob("*.html"))}


def test_every_page_of_the_docs_is_there(site):
    for page in (ROOT / "docs").rglob("*.md"):
        built = site / page.relative_to(ROOT / "docs").with_suffix(".html")
        assert built.exists(), page.name


def test_nothing_is_loaded_from_elsewhere(site, pages):
    for path, page in pages.items():
        assert page.loads, path.name
        for address in page.loads:
            assert not urlsplit(address).netloc, f"{path.name}: {address}"
        # Without this script the theme would load one from a CDN for these.
        if "mermaid" in page.classes:
            assert any(address.endswith("javascripts/mermaid.js") for address in page.loads)
    for style in site.rglob("*.css"):
        for address in re.findall(r"url\(([^)]+)\)", style.read_text(encoding="utf-8")):
            assert not re.match(r"""["']?(https?:)?//""", address), f"{style.name}: {address}"


def test_links_within_the_site_lead_somewhere(site, pages):
    wrong = defaultdict(list)
    for path, page in pages.items():
        # The theme's page for addresses that do not exist links from the root of a server.
        for link in [] if path.name == "404.html" else page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            known = target.exists() and (
                not parts.fragment
                or target not in pages
                or unquote(parts.fragment) in pages[target].ids
            )
            if not known:
                wrong[path.name].append(link)
    assert not wrong


def test_links_to_elsewhere_are_well_formed(pages):
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                assert parts.scheme in ("http", "https"), f"{path.name}: {link}"
                assert re.fullmatch(r"[\w-]+(\.[\w-]+)*(:\d+)?", parts.netloc), link
                assert not re.search(r"\s", link), link


def test_no_page_has_two_places_of_one_name(pages):
    for path, page in pages.items():
        ids = [name for name in page.ids if not name.startswith("__")]
        assert len(ids) == len(set(ids)), path.name


def test_every_public_name_is_in_the_reference(site, pages):
    described = {name.rpartition(".")[2] for name in pages[site / "reference" / "api.html"].ids}
    assert set(sparkswarm.__all__) - {"__version__"} <= described


def test_no_role_of_sphinx_is_left_in_the_reference(site):
    text = (site / "reference" / "api.html").read_text(encoding="utf-8")
    assert not re.findall(r":(?:attr|class|data|exc|func|meth|mod):", text)


@pytest.mark.parametrize(
    "text",
    ["[a](nowhere.md)", "[a](#nowhere)", "[a](/root.md)", "[a](folder/)", "![a](nowhere.png)"],
)
def test_a_page_with_a_broken_link_is_not_built(text, tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# Title\n\n{text}\n")
    config = tmp_path / "mkdocs.yml"
    config.write_text(
        f"INHERIT: {ROOT / 'mkdocs.yml'}\n"
        "docs_dir: docs\nnav: [index.md]\nnot_in_nav: ''\n"
        "hooks: []\nplugins: []\nextra_css: []\nextra_javascript: []\nwatch: []\n"
    )
    with pytest.raises(Abort, match="1 warning"):
        build(load_config(str(config), strict=True, site_dir=str(tmp_path / "site")))

"""The documentation: generated pages are up to date, examples run, links lead somewhere."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("**/*.md"))]
EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def generated():
    script = ROOT / "scripts" / "generate_docs.py"
    spec = importlib.util.spec_from_file_location("generate_docs", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.pages().items()


@pytest.mark.parametrize(("name", "text"), generated())
def test_generated_pages_are_up_to_date(name, text):
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == text, "run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_examples_of_a_page_run_in_order(page, capsys):
    names = {"__name__": "__main__"}
    for example in EXAMPLE.findall(page.read_text(encoding="utf-8")):
        exec(compile(example, page.name, "exec"), names)


def test_the_readme_is_short_and_its_first_example_is_near_the_top():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 130
    example = EXAMPLE.search(text)
    assert text[: example.end()].count("\n") <= 40
    assert not re.findall(r"(?:from|import) sparkswarm\.", example[1]), "public names only"


def test_the_docs_have_at_most_32_000_words():
    pages = [page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md")]
    assert sum(len(page.split()) for page in pages) <= 32_000


def anchors(page):
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_within_the_project_lead_somewhere(page):
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{page.name}: {link}"
        if anchor and path.suffix == ".md":
            assert anchor in anchors(path), f"{page.name}: {link}"


def test_every_make_target_that_the_docs_name_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        named = re.findall(r"`make ([a-z-]+)", page.read_text(encoding="utf-8"))
        assert set(named) <= targets, page.name


def test_every_test_and_file_that_the_protocol_page_names_exists():
    page = (ROOT / "docs" / "explanation" / "protocol.md").read_text(encoding="utf-8")
    files = {
        path.name: path for folder in ("src", "tests") for path in (ROOT / folder).rglob("*.py")
    }
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    for name in re.findall(r"`(?:\w+/)*(\w+\.py)`", page):
        assert name in files, name
    for name in re.findall(r"`(test_\w+)`", page):
        assert f"def {name}(" in tests, name


def test_the_tutorial_takes_less_than_forty_lines():
    first = EXAMPLE.findall(
        (ROOT / "docs" / "tutorial" / "your-own-function.md").read_text(encoding="utf-8")
    )[0]
    assert "in_circle" in first
    assert len(first.strip().splitlines()) < 40

"""The site of docs/ is built without a warning, and a browser needs nothing else to show it."""

import sys
from html.parser import HTMLParser

import pytest
from test_readme import ROOT

import programs

pytest.importorskip("sphinx", reason="needs the extra docs: pip install -e '.[docs]'")
pytest.importorskip("myst_parser", reason="needs the extra docs: pip install -e '.[docs]'")
pytest.importorskip("furo", reason="needs the extra docs: pip install -e '.[docs]'")


class _Page(HTMLParser):
    """What a page fetches, where it leads, and what can be led to."""

    def __init__(self):
        super().__init__()
        self.fetched, self.links, self.names = [], [], set()

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.names.add(found.get("id"))
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag == "link" and found.get("rel") in ("stylesheet", "preload", "icon"):
            self.fetched.append(found["href"])
        elif "src" in found:
            self.fetched.append(found["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going"]
    done = programs.ran(*build, "-d", folder / "trees", ROOT / "docs", folder / "html", check=False)
    assert done.returncode == 0, done.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def pages(site):
    found = {path: _Page() for path in site.rglob("*.html")}
    for path, page in found.items():
        page.feed(path.read_text())
    return found


@pytest.mark.slow
def test_the_site(site, pages):
    """One test, since each worker would build a site of its own."""
    fetches_nothing_from_elsewhere(site, pages)
    leads_somewhere(pages)
    holds_every_job(site)


def fetches_nothing_from_elsewhere(site, pages):
    for page in (ROOT / "docs").rglob("*.md"):
        assert site / page.relative_to(ROOT / "docs").with_suffix(".html") in pages
    for path, page in pages.items():
        for target in page.fetched:
            assert "://" not in target and not target.startswith("//"), (path, target)
            assert (path.parent / target.partition("?")[0]).exists(), (path, target)


def leads_somewhere(pages):
    for path, page in pages.items():
        for link in page.links:
            if "://" in link:
                continue
            file, _, name = link.partition("#")
            target = (path.parent / file).resolve() if file else path
            assert target in pages or target.is_file(), (path, link)
            # Sphinx links the source of what is exported twice to each of its names.
            if name and target in pages and "_modules" not in path.parts:
                assert name in pages[target].names, (path, link)


def holds_every_job(site):
    content = (site / "ladder.html").read_text()
    for path in (ROOT / "jobs").rglob("*.py"):
        if path.stem != "__init__" and "exercises" not in path.parts:
            name = str(path.relative_to(ROOT / "jobs").with_suffix("")).replace("/", "-")
            assert f'id="rung-{name.replace("_", "-")}"' in content
    commands = (site / "reference" / "commands.html").read_text()
    assert "gradreduce data import" in commands

"""Pages in a real browser, without a window."""

import contextlib
import shutil

import pytest

#: Widths in pixels of a telephone and of a window.
WIDTHS = (400, 1200)


@contextlib.contextmanager
def browser():
    """Chromium, to open pages in; without it the test is skipped."""
    # Not for a whole session: as long as it lives, no other event loop runs in this thread.
    api = pytest.importorskip("playwright.sync_api")
    program = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome"))), None)
    if program is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        with contextlib.closing(chromium):
            yield chromium


@contextlib.contextmanager
def visited(chromium, address, width=WIDTHS[1], scheme="light", **options):
    """A page that is loaded.

    By its end it may have asked for nothing beyond its address, and said nothing on the console but
    that the service refused a request.
    """
    context = chromium.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, **options
    )
    with contextlib.closing(context):
        page = context.new_page()
        said, asked = [], []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address)
        yield page
        assert [
            text for text in said if "the server responded with a status of 4" not in text
        ] == []
        assert [url for url in asked if not url.startswith((address, "data:"))] == []


@contextlib.contextmanager
def opened(chromium, content, folder, width=WIDTHS[1], scheme="light"):
    """A page of some content, as :func:`visited`."""
    path = folder / "page.html"
    path.write_text(content, encoding="utf-8")
    with visited(chromium, path.as_uri(), width, scheme, offline=True) as page:
        yield page


def check_accessible(page):
    """Have axe look at a page; nothing may go beyond its edge."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found = axe.run(page).response["violations"]
    assert [(one["id"], one["nodes"][0]["failureSummary"]) for one in found] == []
    width = page.viewport_size["width"]
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def require_accessible(content, folder):
    """Have axe look at a page, narrow and light, wide and dark."""
    with browser() as chromium:
        for width, scheme in zip(WIDTHS, ("light", "dark"), strict=True):
            with opened(chromium, content, folder, width, scheme) as page:
                check_accessible(page)

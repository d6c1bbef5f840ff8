"""The page at ``/``: a row that is typed or drawn is predicted as by the command."""

import asyncio
import contextlib
import csv
import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from browser import WIDTHS, browser, check_accessible, visited
from sklearn.datasets import load_digits

import mapreduce
from mapreduce.runs.directory import RunDir
from mapreduce.serving.http import Application, Request, Settings
from mapreduce.serving.metrics import Metrics
from mapreduce.training.export import scaled
from services import Service, drawn, trained

SCRIPT, IMAGE = "<script>alert(1)</script>", '"><img src=x onerror=alert(2)>'
ROW = {"length": "4.5", "town": "NA", "ok": "yes", "day": "03.04.2024", "note": "red and blue"}
TOKEN = "a-token-of-the-tests"


def rows(count):
    """A table with a column of each kind, and one whose name and levels are HTML."""
    chance = np.random.default_rng(2)
    length = chance.normal(size=count)
    words = chance.choice(["red", "blue", "green", "grey"], (count, 6))
    return pa.table(
        {
            "length": length,
            "town": chance.choice(["Ulm", "NA", "Graz"], count),
            "ok": chance.choice(["true", "false"], count),
            "day": [f"{day:02}.04.2024" for day in chance.integers(1, 30, count)],
            "note": [" and ".join(line) for line in words],
            SCRIPT: chance.choice([IMAGE, "plain"], count),
            "label": np.where(length > 0, "<b>", "short"),
        }
    )


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    table = rows(200)
    runs = [trained(table, folder / "row", text=["note"])]
    numbers = table.drop_columns("label").rename_columns({"length": "label"})
    runs.append(trained(numbers, folder / "number", "linear", text=["note"]))
    found = Service(
        *runs,
        images(folder),
        drawn(folder / "steps.safetensors", "rnn:4,last", (3, 2), (0, 1), 1),
        workers=1,
    )
    found.folder = folder
    yield found
    assert found.stop() == 0


@pytest.fixture(scope="module")
def locked(service):
    """A service that answers those who have its token."""
    (service.folder / "token").write_text(TOKEN)
    model = service.folder / "digits.safetensors"
    found = Service(model, "--token-file", service.folder / "token", workers=1)
    yield found
    assert found.stop() == 0


def images(folder):
    """A model of digits that were stored as bytes."""
    data = load_digits()
    options = {"epochs": 10, "batch_size": 128, "learning_rate": 0.5}
    options |= {"run": folder / "learned", "progress": False, "executor": "here"}
    mapreduce.train((data.images / 16, data.target), "softmax", **options)
    replace(scaled(RunDir(folder / "learned")), scale=1 / 16).save(folder / "digits.safetensors")
    return folder / "digits.safetensors"


@contextlib.contextmanager
def tab(service, model=None, **options):
    """The page of a service, with a model."""
    with (
        browser() as chromium,
        visited(chromium, f"http://localhost:{service.port}/", **options) as page,
    ):
        if model is not None:
            choose(page, model)
        yield page


def choose(page, model):
    page.get_by_label("Model").select_option(model)
    page.get_by_role("heading", name=model, exact=True).wait_for()


def predict(page):
    """Ask for a prediction; returns it, and the probabilities by class."""
    page.locator("#result").evaluate("part => part.replaceChildren()")
    page.get_by_role("button", name="Predict").click()
    prediction = page.locator(".prediction").inner_text()
    lines = [line.split("\t") for line in page.locator("#result tr").all_inner_texts()]
    return prediction, {line[0]: float(line[-1]) for line in lines}


def fill(page, **fields):
    for name, value in fields.items():
        control = page.get_by_label(name, exact=True)
        if control.evaluate("control => control.tagName") == "SELECT":
            control.select_option(value)
        else:
            control.fill(value)


def ask(path, method="GET", host=b"localhost"):
    """Status, headers and body of the answer of a service with a token, in this process."""

    async def answered():
        application = Application([], Metrics([], 1), Settings(token=b"secret"))
        request = Request()
        request.url, request.method, request.headers = path.encode(), method, {b"host": host}
        application.admit(request, "")
        return await application.reply(request)

    reply = asyncio.run(answered())
    headers = {**dict(reply.headers), b"content-type": reply.kind}
    return reply.status, headers, reply.body.decode()


def test_the_page_is_open_and_says_nothing_of_the_models():
    assert ask("/v2")[0] == 401
    for path, kind in (("/", b"html"), ("/page.js", b"javascript"), ("/page.css", b"css")):
        status, headers, text = ask(path)
        assert status == 200 and kind in headers[b"content-type"]
        assert b"default-src 'none'; script-src 'self'" in headers[b"content-security-policy"]
        # Nothing that the policy would keep from working, and no other address.
        assert not re.search(r"<style|<script>| style=| on[a-z]+=|https?://|innerHTML|eval", text)
        assert ask(path, host=b"example.org")[0] == 403
        assert ask(path, "POST")[0] == 405


def test_a_row_has_the_probability_of_the_command(service, tmp_path, answer):
    with (tmp_path / "row.csv").open("w", newline="") as file:
        csv.writer(file).writerows([[*ROW, SCRIPT], [*ROW.values(), IMAGE]])
    answer(0, "predict", service.folder / "row", tmp_path / "row.csv", tmp_path / "out.csv")
    (expected,) = csv.DictReader((tmp_path / "out.csv").read_text().splitlines())
    with tab(service, "row") as page:
        # Names and levels are texts, whatever is in them.
        assert page.locator("#fields label").all_inner_texts() == [*ROW, SCRIPT]
        options = page.get_by_label(SCRIPT).locator("option").all_inner_texts()
        assert options == ["missing", IMAGE, "plain"]
        fill(page, **ROW, **{SCRIPT: IMAGE})
        found, shares = predict(page)
        assert found == expected["prediction"] == "<b>"
        assert str(shares["<b>"]) == expected["probability"]
        run = mapreduce.open_run(service.folder / "row")
        assert run.model_sha256 in page.locator("header").inner_text()
        assert "version 4" in page.locator("header").inner_text()
        assert page.locator(".warning, main :is(script, img, b)").count() == 0
        fill(page, length="")
        assert predict(page)[0] in ("<b>", "short")
        assert "column length: 1 of the fields" in page.locator(".warning").inner_text()


def test_an_error_stands_beside_its_field(service):
    with tab(service, "row") as page:
        for name, wrong in (("length", "long"), ("day", "May")):
            fill(page, **{name: wrong})
            page.get_by_role("button", name="Predict").click()
            control = page.locator("[aria-invalid=true]")
            assert control.get_attribute("aria-labelledby") == page.get_by_text(
                name, exact=True
            ).get_attribute("id")
            fault = page.locator(f"#{control.get_attribute('aria-describedby').split()[-1]}")
            assert repr(wrong) in fault.inner_text() and "expected" in fault.inner_text()
            assert control.evaluate("control => control === document.activeElement")
            fill(page, **{name: ""})
        check_accessible(page)
        choose(page, "steps")
        fill(page, input="1, 2; 3")
        page.get_by_role("button", name="Predict").click()
        page.locator(".fault", has_text="expected 6 elements").wait_for()


def test_numbers_are_predicted_and_arrays_pasted(service, tmp_path):
    run = mapreduce.open_run(service.folder / "number")
    row = {name: value for name, value in ROW.items() if name != "length"}
    expected = run.predict(pa.Table.from_pylist([{**row, SCRIPT: "plain"}]))["prediction"]
    steps = mapreduce.load(service.folder / "steps.safetensors")
    numbers = np.arange(6, dtype=np.float32).reshape(1, 3, 2)
    (tmp_path / "numbers.txt").write_text(str(numbers.tolist()))
    with tab(service, "number") as page:
        fill(page, **row, **{SCRIPT: "plain"})
        assert np.float32(predict(page)[0]) == expected[0].as_py()
        page.get_by_label("Model").select_option("steps")
        page.get_by_label("File of the numbers").set_input_files(tmp_path / "numbers.txt")
        shares = steps.predict(numbers, probabilities=True)[0]
        assert [*map(np.float32, predict(page)[1].values())] == sorted(shares, reverse=True)


def test_a_digit_is_drawn_and_recognised(service):
    data = load_digits()
    with tab(service, "digits") as page:
        canvas = page.locator("canvas")
        board = canvas.bounding_box()
        side = board["width"] / 8
        for label in (0, 4, 7):
            page.get_by_role("button", name="Clear").click()
            for y, x in np.argwhere(data.images[data.target == label][1] > 8):
                page.mouse.move(board["x"] + (x + 0.5) * side, board["y"] + (y + 0.5) * side)
                page.mouse.down()
                page.mouse.up()
            assert predict(page)[0] == str(label)
        # By keys alone, a line from the third row down.
        page.get_by_role("button", name="Clear").press("Enter")
        canvas.focus()
        for key in ("ArrowUp", "ArrowUp", "Shift+ArrowDown", "Shift+ArrowDown", "ArrowDown"):
            page.keyboard.press(key)
        pixels = "canvas => [...canvas.getContext('2d').getImageData(4, 0, 1, 8).data]"
        assert [level > 250 for level in canvas.evaluate(pixels)[::4]] == [
            *[False, False, True, True],
            *[True, False, False, False],
        ]
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        assert page.locator(".prediction").inner_text()


def test_the_token_is_asked_for_and_forgotten(locked):
    with tab(locked) as page:
        asked = page.get_by_label("Token")
        asked.fill("another")
        check_accessible(page)
        page.keyboard.press("Enter")
        page.get_by_role("alert").get_by_text("not the token of this service").wait_for()
        assert page.locator("canvas").count() == 0
        asked.fill(TOKEN)
        page.keyboard.press("Enter")
        page.locator("canvas").wait_for()
        assert predict(page)[0]
        kept = page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]")
        assert kept == [0, 0, ""]
        page.reload()
        asked.wait_for()
        assert asked.input_value() == ""


@pytest.mark.parametrize(("width", "scheme"), [(WIDTHS[0], "light"), (WIDTHS[1], "dark")])
def test_the_page_is_accessible(service, width, scheme):
    with tab(service, "row", width=width, scheme=scheme) as page:
        predict(page)
        check_accessible(page)
        choose(page, "digits")
        check_accessible(page)

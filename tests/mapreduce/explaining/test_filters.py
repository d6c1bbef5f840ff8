"""The pictures of a network's first convolution: what they show, on a page and on a terminal."""

import io
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from browser import require_accessible
from rich.console import Console
from test_explain import require_whole

import naive
from builders import keywords, trained
from mapreduce.checking.notebook import Explained
from mapreduce.data.importer import Rows, Source, import_rows
from mapreduce.data.shards import Dataset
from mapreduce.explaining.training import filters
from mapreduce.explaining.training.explaining import traced
from mapreduce.explaining.training.sections import view
from mapreduce.models.context import Key
from mapreduce.plan import augmentation
from mapreduce.plan.settings import Settings
from mapreduce.report import terminal
from mapreduce.report.blocks import Gallery, Picture, Section
from mapreduce.report.page import page
from mapreduce.runs import checkpoint

SETTINGS = Settings(
    "conv:10x3:stride=2:padding=1,relu,pool:2",
    **keywords("augment=flip,crop:2 batch_size=40 slice_rows=10 rounds=2 checkpoint_every=1"),
    **keywords("seed=4"),
)


def explained(folder, shape, **changes):
    pixels = np.random.default_rng(0).integers(0, 256, (80, *shape), np.uint8)
    rows = Rows(pixels.reshape(80, -1), np.array(["a", "b"])[np.arange(80) % 2])
    import_rows(Source([rows], shape, 1 / 255, 0, {}), folder / "data", 0)
    run = trained(folder / "run", folder / "data", replace(SETTINGS, **changes))
    return run, traced(run.path, 2, None, None, None)


@pytest.fixture(scope="module", params=[(3, 12, 10), (12, 10)], ids=str)
def found(request, tmp_path_factory):
    return request.param, *explained(tmp_path_factory.mktemp("filters"), request.param)


def test_what_is_noted(found):
    shape, run, trace = found
    note, plan = trace.convolution, run.config.plan
    assert (note.layer, note.count, len(note.filters)) == ("conv:10x3:stride=2:padding=1", 10, 8)
    rows = plan.slices(1)[0]
    assert (note.shard, note.row) == (rows.shard, rows.start)
    batch = Dataset(run.path.parent / "data").shard(0).rows(rows.start, rows.start + 1)
    assert note.label == "ab"[batch.labels[0]]
    changes = augmentation.parse(plan.augment)
    seen = changes.apply(batch, shape, Key(4, 1, shard=rows.shard, row=rows.start)).features
    image = seen.reshape(-1, 12, 10).transpose(1, 2, 0) / 255
    np.testing.assert_allclose(note.image, image, rtol=1e-3, atol=1e-6)
    model = plan.create_model()
    before, after = (model.named(checkpoint.load(run, model, n).params) for n in (1, 2))
    for number, one in enumerate(note.filters):
        for shown, params in ((one.before, before), (one.after, after)):
            np.testing.assert_allclose(shown, params["0.weight"][..., number], rtol=1e-3)
    maps = naive.convolve(image[None], before["0.weight"], 2, 1)[0] + before["0.bias"]
    shown = np.moveaxis([one.map for one in note.filters], 0, -1)
    np.testing.assert_allclose(shown, maps[..., :8], rtol=1e-3, atol=1e-5)


def test_the_page_is_small_and_whole(found):
    content = page(view(found[2]))
    require_whole(content)
    assert content.count("<figure") == 4
    assert len(content) < 150_000
    assert len(json.dumps(Explained(found[2], view(found[2])).data())) < 60_000


@pytest.mark.slow
def test_it_is_accessible(found, tmp_path):
    require_accessible(page(view(found[2])), tmp_path)


def test_a_terminal_shows_what_fits(found):
    console = Console(file=io.StringIO(), width=100)
    terminal.show(console, [filters.section(found[2].convolution)])
    shown = console.file.getvalue()
    assert "10 filters of 3 × 3 pixels and" in shown
    assert "the first 8 are shown" in " ".join(shown.split())
    assert "and what the filters before the round make of it" in " ".join(shown.split())
    assert max(map(len, shown.splitlines())) <= 100


def test_pixels_become_characters_and_lines(found):
    black, grey, white = ((level,) * 3 for level in (0, 128, 255))
    picture = Picture("one", [[black, grey, grey], [white, white, black]])
    gallery = Gallery("some", [picture])
    console = Console(file=io.StringIO(), width=100)
    console.print(terminal.rendered(gallery))
    lines = console.file.getvalue().splitlines()
    assert [line.rstrip() for line in lines] == ["some", "one", "  ▒▒▒▒", "████"]
    content = page(replace(view(found[2]), sections=[Section("one", "", "", [gallery])]))
    assert '<path stroke="#888888" d="M1 0.5h2"/>' in content
    assert '<path stroke="#ffffff" d="M0 1.5h2"/>' in content
    assert '<path stroke="#000000" d="M0 0.5h1M2 1.5h1"/>' in content


def test_numbers_that_are_not_finite(found):
    note = found[2].convolution
    bad = [[[math.nan] * len(pixel) for pixel in row] for row in note.filters[0].after]
    maps = [[math.inf, -math.inf], [0.0, 1.0]]
    broken = replace(note, filters=[replace(note.filters[0], after=bad, map=maps)])
    _, after, _, maps = filters.section(broken).blocks
    assert {level for row in after.pictures[0].pixels for level in row} == {(127, 127, 127)}
    assert maps.pictures[1].pixels == [
        [(255, 255, 255), (0, 0, 0)],
        [(127, 127, 127), (255, 255, 255)],
    ]


@pytest.mark.parametrize("model", ["softmax", "dense:4,relu", "batchnorm,conv:2x3"])
def test_models_that_begin_otherwise(tmp_path, model):
    _, trace = explained(tmp_path, (6, 6), model=model, augment=None)
    assert trace.convolution is None
    assert "filters" not in [one.name for one in view(trace).sections]

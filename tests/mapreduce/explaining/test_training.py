"""``gradreduce explain`` of a round: figures of naive rounds, and bits beside the run's own."""

import io
import json
import math
import shutil
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from browser import browser, opened, require_accessible
from rich.console import Console
from test_explain import answer, place, require_whole

import datasets
import naive
from builders import HERE
from mapreduce.checking.notebook import Explained
from mapreduce.data.shards import Dataset
from mapreduce.errors import DataError, MissingInputError, UsageError
from mapreduce.explaining import summary
from mapreduce.explaining.training.explaining import traced
from mapreduce.explaining.training.model import RoundTrace
from mapreduce.explaining.training.sections import draw_tree, report, view
from mapreduce.plan.settings import Settings
from mapreduce.report import terminal
from mapreduce.report.page import page
from mapreduce.runners.keys import spelled
from mapreduce.runs import checkpoint
from mapreduce.runs.directory import RunDir
from mapreduce.runs.events import Events
from mapreduce.runs.execution import Execution
from mapreduce.training import creating, driver
from quick import cases

pytestmark = pytest.mark.usefixtures("pinned")

SOFTMAX = Settings("softmax", batch_size=120, slice_rows=20, rounds=9, checkpoint_every=4)

#: Three pages of parameters, scalars of all blocks, and a state of the optimizer.
ADAM = replace(SOFTMAX, model="mlp:2048,8", optimizer="adam", clip_norm=1.0, rounds=3)

THREE = Execution(runner="inline", workers=3)


def trained(folder, settings, execution=THREE):
    run = creating.create(folder, settings, folder.parent / "data", None)
    driver.train(run, execution, 0, Events())
    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rounds")
    datasets.blobs(folder / "data")
    trained(folder / "softmax", SOFTMAX)
    trained(folder / "adam", ADAM, Execution(runner="inline", workers=4, blocks=2, fan_in=2))
    return folder


@pytest.fixture(scope="module")
def simple(folder):
    return traced(folder / "softmax", 6, None, None, None)


@pytest.fixture(scope="module")
def divided(folder):
    return traced(folder / "adam", 2, None, None, None)


def params_after(run, completed):
    """Naively: the rounds from the seed on, with the mean gradient over all rows at once."""
    plan = run.config.plan
    data = Dataset(run.path.parent / "data")
    params = plan.create_model().init(plan.seed).astype(np.float64)
    for number in range(completed):
        x, y = rows_of(data, plan.slices(number))
        params = params - plan.learning_rate * gradient(params, x, y)[1] / len(y)
    return params


def rows_of(data, slices):
    batches = [data.shard(one.shard).rows(one.start, one.stop) for one in slices]
    x = np.concatenate([batch.features for batch in batches]).astype(np.float64)
    return x, np.concatenate([batch.labels for batch in batches])


def gradient(params, x, y):
    """Sums of the losses and gradients of a softmax regression."""
    features, classes = x.shape[1], params.size // (x.shape[1] + 1)
    weight = params[: features * classes].reshape(features, classes)
    logits = naive.affine(x, weight, params[features * classes :])
    loss, errors = naive.softmax_cross_entropy(logits, y)
    return loss, np.concatenate([part.ravel() for part in naive.affine_gradient(x, errors)])


class TestFigures:
    def test_norms_and_losses_are_those_of_loops(self, folder, simple):
        run = RunDir(folder / "softmax")
        plan, data = run.config.plan, Dataset(folder / "data")
        params = params_after(run, 5)
        slices = plan.slices(5)
        assert len(simple.slices) == len(slices) == 6
        sums = []
        for note, rows in zip(simple.slices, slices, strict=True):
            loss, vector = gradient(params, *rows_of(data, [rows]))
            sums.append(vector)
            assert (note.shard, note.start, note.stop) == tuple(rows)
            assert note.loss == pytest.approx(loss, rel=1e-4)
            assert note.norm == pytest.approx(math.sqrt(sum(one**2 for one in vector)), rel=1e-4)
        for node in simple.nodes:
            total = sum(sums[node.start : node.stop])
            assert node.norm == pytest.approx(np.linalg.norm(total), rel=1e-4)
        mean = sum(sums) / simple.rows
        assert simple.norm == pytest.approx(np.linalg.norm(mean), rel=1e-4)
        (weight, bias) = simple.parameters
        assert weight.gradient**2 + bias.gradient**2 == pytest.approx(simple.norm**2)
        after = params_after(run, 6)
        assert weight.before == pytest.approx(np.linalg.norm(params[: 12 * 3]), rel=1e-4)
        assert weight.after == pytest.approx(np.linalg.norm(after[: 12 * 3]), rel=1e-4)
        change = np.linalg.norm((after - params)[: 12 * 3])
        assert weight.change == pytest.approx(change, rel=1e-3)

    def test_the_tree_is_the_canonical_one(self, simple):
        found = {(node.start, node.middle, node.stop) for node in simple.nodes}
        assert found == {(0, 1, 2), (2, 3, 4), (4, 5, 6), (0, 2, 4), (0, 4, 6)}
        by_task = {(node.start, node.stop): node.task for node in simple.nodes}
        # Two slices for each of three map tasks; all that is above belongs to the reducer.
        assert by_task == {(0, 2): 0, (2, 4): 1, (4, 6): 2, (0, 4): -1, (0, 6): -1}

    def test_bytes_are_those_of_the_lines(self, simple):
        (step,) = simple.steps
        sent = [one for task in step.maps for one in task.outputs]
        assert [one.value.text for one in sent] == [
            f"gradients of slices {pair}" for pair in ("0–1", "2–3", "4–5")
        ]
        # Two references for the next round would be too many: it has one block.
        assert len(step.reduces[0].outputs) == 3
        elements = 12 * 3 + 3
        assert all(one.size > 4 * elements for one in sent)
        assert summary.counters(step)["REDUCE_SHUFFLE_BYTES"] == sum(one.size for one in sent)

    def test_the_trace_holds_no_arrays(self, simple):
        assert len(json.dumps(Explained(simple, view(simple)).data())) < 30_000

    def test_merges_and_scalars_have_steps_of_their_own(self, divided):
        reducers = [step.methods[-1].name for step in divided.steps]
        assert reducers[-2:] == ["average", "finish"]
        assert set(reducers[:-2]) == {"merge"}
        found = [*map(summary.counters, divided.steps)]
        for before, after in pairwise(found):
            assert before["REDUCE_OUTPUT_BYTES"] == after["MAP_INPUT_BYTES"]
        for step in divided.steps[: len(reducers) - 2]:
            for task in step.reduces:
                assert all(len(group.values) <= 2 for group in task.groups)
        owners = {spelled((block.number,)): block.part for block in divided.blocks}
        sent = [one for task in divided.steps[-1].maps for one in task.outputs]
        assert {summary.raw_key(one): one.part for one in sent} == owners
        assert len(owners) == 2


class TestBits:
    def test_of_a_round_that_was_kept(self, folder):
        trace = traced(folder / "softmax", 8, None, None, None)
        assert [check.is_equal for check in trace.checks] == [True, True]
        run = RunDir(folder / "softmax")
        kept = checkpoint.load(run, run.config.plan.create_model(), 8)
        named = run.config.plan.create_model().named(kept.params)
        assert trace.sha256_after == checkpoint.model_sha256(named)

    def test_of_a_round_between(self, simple):
        assert simple.facts["rounds run again from there"] == 1
        assert "after 4 rounds" in simple.facts["state before from"]
        texts = {check.what: check.is_equal for check in simple.checks}
        assert texts == {"the loss of the round": True, "the model, 2 rounds later": True}

    def test_of_the_optimizers_state(self, divided):
        assert [check.is_equal for check in divided.checks] == [True] * 3

    @pytest.mark.parametrize("layout", [(1, 1, 0), (5, 2, 0), (6, 3, 4)])
    def test_do_not_depend_on_the_layout(self, folder, divided, layout):
        trace = traced(folder / "adam", 2, *layout)
        assert trace.sha256_after == divided.sha256_after
        assert not trace.is_other
        assert [one.norm for one in trace.slices] == [one.norm for one in divided.slices]

    def test_the_run_is_only_read(self, folder):
        def files():
            paths = (path for path in (folder / "softmax").rglob("*") if path.is_file())
            return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}

        before = files()
        traced(folder / "softmax", 3, None, None, None)
        assert files() == before

    def test_that_are_others_are_told(self, folder, tmp_path, answer):
        shutil.copytree(folder / "softmax", tmp_path / "run")
        events = tmp_path / "run" / "events.jsonl"
        lines = [json.loads(line) for line in events.read_text().splitlines()]
        for line in lines:
            # Lines of earlier versions have none.
            del line["crc32"]
            if line.get("completed") == 8 and "loss" in line:
                line["loss"] += 1e-9
        events.write_text("\n".join(map(json.dumps, lines)))
        assert "differs from what the run has" in " ".join(
            answer(1, "explain", tmp_path / "run", "--round", "8").out.split()
        )
        # The same on another processor is no fault of anybody.
        profile = json.loads((tmp_path / "run" / "profile.json").read_text())
        (tmp_path / "run" / "profile.json").write_text(json.dumps({**profile, "cpu": "other"}))
        assert "another numeric profile (cpu: other" in " ".join(
            answer(0, "explain", tmp_path / "run", "--round", "8").out.split()
        )

    def test_the_first_round_comes_from_the_seed(self, folder):
        trace = traced(folder / "softmax", 1, None, None, None)
        assert trace.facts["state before from"] == "the seed of the plan"
        assert trace.facts["rounds run again from there"] == 0


class TestViews:
    @pytest.mark.parametrize("name", ["simple", "divided"])
    def test_report(self, name, request):
        trace = request.getfixturevalue(name)
        console = Console(file=io.StringIO(), width=100)
        terminal.show(console, report(trace))
        shown = console.file.getvalue()
        assert "REDUCE_SHUFFLE_BYTES" in shown
        assert "yes, to the bit" in shown
        assert trace.parameters[0].name in shown

    @pytest.mark.parametrize("name", ["simple", "divided"])
    def test_page_is_whole(self, name, request):
        require_whole(page(view(request.getfixturevalue(name))))

    def test_many_slices_of_a_large_model_are_sampled(self, folder):
        trace = traced(folder / "adam", 2, 4, 2, 0)
        many = grown(trace, 3000)
        assert len(draw_tree(many).splitlines()) < 32
        content = page(view(many))
        assert len(content.encode()) < 500_000
        assert "24 of 3,000 slices" in content

    def test_the_tree_is_drawn_down_to_the_slices(self, simple):
        lines = [line.partition(":")[0] for line in draw_tree(simple).splitlines()]
        assert lines[:5] == [
            *("0–5, the reducer", "   0–3, the reducer", "      0–1, map task 0"),
            *("         slice 0, map task 0", "         slice 1, map task 0"),
        ]
        assert len(lines) == len(simple.nodes) + len(simple.slices)

    def test_in_a_browser(self, divided, tmp_path):
        total = len(view(divided).scenes)
        with browser() as chromium, opened(chromium, page(view(divided)), tmp_path) as tab:
            seen = [place(tab)]
            for key in ("ArrowRight", "ArrowLeft", "End"):
                tab.keyboard.press(key)
                seen.append(place(tab))
            assert seen == [f"Scene {n} of {total}" for n in (1, 2, 1, total)]
            tab.keyboard.press("Home")
            tab.locator("#quiz").check()
            answer(tab)
            assert tab.locator("[data-picture] .on").count() > 0

    @pytest.mark.slow
    def test_is_accessible(self, divided, tmp_path):
        require_accessible(page(view(divided)), tmp_path)


def grown(trace, leaves):
    """The trace of a round with so many slices, all like the first, on its map tasks."""
    first, tasks = trace.slices[0], len(trace.steps[0].maps)
    slices = [
        replace(first, leaf=n, task=n * tasks // leaves, start=n * 20, stop=n * 20 + 20)
        for n in range(leaves)
    ]
    nodes, spans, level = [], [(n, n + 1) for n in range(leaves)], 0
    while len(spans) > 1:
        level += 1
        pairs = [spans[n : n + 2] for n in range(0, len(spans), 2)]
        spans = [(pair[0][0], pair[-1][1]) for pair in pairs]
        nodes += [
            replace(
                trace.nodes[0], start=pair[0][0], middle=pair[0][1], stop=pair[1][1], level=level
            )
            for pair in pairs
            if len(pair) == 2
        ]
    return replace(trace, slices=slices, nodes=nodes)


class TestCommand:
    def test_page_and_json(self, folder, tmp_path, answer):
        path = tmp_path / "page.html"
        assert "bytes" in answer(0, "explain", folder / "softmax", "--html", path).out
        assert "<svg" in path.read_text()
        content = json.loads(answer(0, "explain", folder / "softmax", "--json").out)
        # The last round of the run has the slices that a round has.
        assert content["number"] == 9
        assert len(content["slices"]) == len(content["nodes"]) + 1

    def test_play(self, folder, answer):
        assert "Scene 1 of" in answer(0, "explain", folder / "softmax", "--step").out

    def test_what_is_not_finite_is_null(self, simple):
        assert Explained(replace(simple, norm=math.nan), view(simple)).data()["norm"] is None
        assert isinstance(simple, RoundTrace)

    @cases(
        "arguments, code, message",
        (["softmax", "--round", "10"], 2, "Expected a number from 1 to 9"),
        (["softmax", "--round", "0"], 2, "0 is not in the range"),
        (["softmax", "--key", "a"], 2, "--key is for jobs"),
        (["softmax", "--lines", "10"], 2, "--lines is for jobs"),
        (["softmax", "input.txt"], 2, "is a run, which has its own data"),
        (["softmax", "--fan-in", "3"], 2, "a power of two"),
        (["softmax", "--html", "/proc/no/page.html"], 73, "cannot write"),
        (["data"], 66, "neither a job nor a run"),
        (["nothing"], 66, "no module 'nothing'"),
        (["jobs.word_count", "--round", "2"], 2, "--round is for the folder of a run"),
    )
    def test_what_makes_no_sense(self, folder, monkeypatch, answer, arguments, code, message):
        monkeypatch.chdir(folder)
        assert message in answer(code, "explain", *arguments).err

    def test_a_run_without_a_round(self, folder, tmp_path):
        run = creating.create(tmp_path / "run", SOFTMAX, folder / "data", None)
        with pytest.raises(UsageError, match="has not finished a round yet"):
            traced(run.path, None, None, None, None)

    def test_data_that_are_gone_or_others(self, folder, tmp_path):
        shutil.copytree(folder / "data", tmp_path / "data")
        trained(tmp_path / "run", replace(SOFTMAX, rounds=1))
        shutil.rmtree(tmp_path / "data")
        with pytest.raises(MissingInputError, match="the run's data are gone"):
            traced(tmp_path / "run", None, None, None, None)
        datasets.blobs(tmp_path / "data", seed=9)
        with pytest.raises(DataError, match="is not the dataset that the run began with"):
            traced(tmp_path / "run", None, None, None, None)

    def test_a_remote_run(self, folder, s3, answer):
        from hdfs_utils.paths import path_of

        root = path_of(s3)
        for path in (folder / "data").iterdir():
            (root / "data" / path.name).write_bytes(path.read_bytes())
        run = creating.create(root / "run", replace(SOFTMAX, rounds=2), root / "data", None)
        driver.train(run, HERE, 0, Events())
        content = json.loads(answer(0, "explain", f"{s3}/run", "--round", "1", "--json").out)
        assert [check["is_equal"] for check in content["checks"]] == [True, True]
        assert "neither a job nor a run" in answer(66, "explain", f"{s3}/none").err

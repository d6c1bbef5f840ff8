"""The text of a network, and its errors."""

import json

import pytest
from hypothesis import given, strategies as st

import datasets
from mapreduce import models
from mapreduce.errors import UsageError
from mapreduce.models import LAYERS
from mapreduce.models.layers.activation import ReLU
from mapreduce.models.layers.dense import Dense
from mapreduce.models.layers.residual import Residual
from mapreduce.models.layers.spec import parse
from mapreduce.training.given import specification
from programs import WIDE, fails, succeed
from quick import cases

_SIZES = st.integers(1, 99)
_PLAIN = st.sampled_from(["relu", "tanh", "sigmoid", "gelu", "batchnorm", "global-average-pool"])
_WITH_NUMBERS = st.one_of(
    st.builds("dense:{}".format, _SIZES),
    st.builds("conv:{}x{}".format, _SIZES, _SIZES),
    st.builds("conv:{}x{}:stride={}:padding={}".format, _SIZES, _SIZES, st.integers(2, 9), _SIZES),
    st.builds("pool:{}:stride={}".format, _SIZES, _SIZES),
    st.builds("dropout:{}".format, st.floats(0, 0.99)),
)
_LISTS = st.recursive(
    st.lists(_PLAIN | _WITH_NUMBERS, min_size=1, max_size=4).map(",".join),
    lambda inner: st.builds("{},residual({})".format, inner, inner),
    max_leaves=3,
)


@given(_LISTS)
def test_layers_are_written_as_they_are_read(spec):
    assert ",".join(map(str, parse(spec))) == spec


def test_blanks_and_defaults_are_not_written():
    layers = parse(" conv:16x5:stride=1 ,  relu,pool:2:stride=0")
    assert [str(layer) for layer in layers] == ["conv:16x5", "relu", "pool:2"]


@cases(
    "spec, message",
    ("relu,cnv:16x5", "layer 'cnv:16x5': unknown layer: .* Did you mean conv?"),
    ("cnv:16x5,relu", "unknown model 'cnv:16x5,relu': .* Did you mean conv?"),
    ("conv:16", "layer 'conv:16': expected conv:FILTERSxSIZE"),
    ("conv:16x5x2", "layer 'conv:16x5x2': expected conv:FILTERSxSIZE"),
    ("conv:16x5:strid=2", "layer 'conv:16x5:strid=2': expected conv:FILTERS"),
    ("conv:16x5:stride=2:stride=3", "expected conv:FILTERS"),
    ("conv:axb", "expected conv:FILTERSxSIZE"),
    ("dense", "layer 'dense': expected dense:UNITS"),
    ("relu:3", "layer 'relu:3': expected relu, which has no arguments"),
    ("dense:4,,relu", "no layer before or after one of the commas"),
    ("residual:relu", "layer 'residual:relu': expected residual"),
    ("residual()", "no layer before or after"),
    ("residual(" * 4 + "relu" + ")" * 4, "at most 3 residual blocks within each other"),
    ("residual(" * 10_000, "at most 3 residual blocks within each other"),
    ("relu," * 10_000 + "relu", "expected at most 10,000, found 10,001"),
    ("dense:" + "9" * 4000, "expected numbers below 2,147,483,648"),
    ("leaky-relu:slope=nan", "expected numbers below"),
    ("leaky-relu:slope=-inf", "expected numbers below"),
    ("conv:1x1:padding=1000000,global-average-pool", "does not fit into"),
    ("dense:4,relu)", "the parenthesis at 12 closes nothing"),
    ("dense:4,residual(relu", "1 open parentheses are not closed"),
    ("dense:4,relu(tanh)", "only residual"),
    (
        "conv:4x30",
        "conv:4x30: expected an image of at least 30 × 30 .*found an image of 28 × 28 × 1",
    ),
    ("dense:4,conv:4x3", "layer conv:4x3: expected an image .*, found a vector of 4"),
    (
        "pool:2,pool:15",
        "layer pool:15: expected an image of at least 15 × 15 .*found .* 14 × 14 × 1",
    ),
    ("residual(conv:4x3)", "give .* 26 × 26 × 4 .*, which cannot be added .* 28 × 28 × 1"),
    ("dense:0", "layer dense:0: expected units of at least 1, found 0"),
    ("conv:3x3:padding=-1", "expected padding of at least 0, found -1"),
    ("conv:3x3:stride=0", "expected stride of at least 1, found 0"),
    ("dropout:1.0", r"expected a rate in \[0, 1\), found 1.0"),
    ("dropout:nan", "layer 'dropout:nan': expected numbers below"),
    ("sequential", "--model sequential: expected lenet5"),
    ("dense:10000000,dense:10000000", "does not fit into"),
)
def test_what_is_wrong_is_said(spec, message):
    with pytest.raises(UsageError, match=f"(?s){message}"):
        models.create(spec, (28, 28), 10, "float32")


@pytest.mark.parametrize("name", models.NETWORKS)
def test_named_networks_are_lists_of_layers(name):
    shape = {"lenet5": (28, 28), "char-gru": (64,)}.get(name, (3, 32, 32))
    named, written = (
        models.create(spec, shape, 10, "float32") for spec in (f" {name}", models.NETWORKS[name])
    )
    assert named.parameters == written.parameters
    assert 0.45e6 < named.size < 0.55e6 or name != "cifar-cnn"


def test_every_layer_says_its_form_and_what_it_is():
    for name in LAYERS:
        kind = LAYERS.find(name)
        assert kind.name() == name
        assert kind.__doc__


def test_a_network_learns_numbers_if_the_labels_are_numbers():
    assert models.find("dense:3,relu", "number").regression
    assert not models.find("dense:3,relu", "class").regression
    assert models.create("dense:3,relu", 4, 0, "float64").regression


def test_models_that_are_no_networks_show_their_parameters(tmp_path, monkeypatch):
    (tmp_path / "own_wide.py").write_text(WIDE)
    monkeypatch.chdir(tmp_path)
    data = datasets.blobs(tmp_path / "data").folder
    shown = succeed("models", "show", "own_wide:Wide:width=4", "--data", data).splitlines()
    assert shown[0].split() == ["parameter", "shape", "elements", "bytes"]
    assert [line.split() for line in shown[1:4]] == [
        ["weight", "12", "×", "3", "36", "144"],
        ["bias", "3", "3", "12"],
        ["all", "39", "156"],
    ]
    assert shown[4] == "option :width=3  how wide"
    found = json.loads(succeed("models", "show", "mlp:5", "--data", data, "--json"))
    assert [one["shape"] for one in found["parameters"]] == [[12, 5], [5], [5, 3], [3]]
    assert found["options"] == {}
    for spec, message in {
        "own_wied:Wide": "No module named 'own_wied'. Did you mean own_wide:Wide?",
        "own_wide:Wid": "'own_wide' has no attribute 'Wid'. Did you mean own_wide:Wide?",
        "own_wide:Wide:widht=4": "no option 'widht': expected one of width. Did you mean width?",
        "own_wide:Wide:4": "expected options such as width=VALUE",
    }.items():
        assert message in fails(2, "models", "show", spec, "--data", data)


def test_layers_of_python_are_their_text():
    layers = [Dense(8), Residual([Dense(8), ReLU()])]
    assert specification(layers) == ("dense:8,residual(dense:8,relu)", None)
    assert specification(layers[0]) == ("dense:8", None)

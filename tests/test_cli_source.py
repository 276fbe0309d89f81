"""Networks and input shapes from command-line arguments."""

from __future__ import annotations

import sys

import pytest

from gpudemand._validation import InputError
from gpudemand.cli.networks import load_model, parse_shape

FILE = """
from neighbour import WIDTH

class Net:
    width = WIDTH

def build_model():
    return Net()

def broken():
    raise ValueError("no weights")

ready = Net()
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "neighbour.py").write_text("WIDTH = 7\n")
    (tmp_path / "model.py").write_text(FILE)
    (tmp_path / "bad.py").write_text("import there_is_no_such_module\n")
    return tmp_path


@pytest.mark.parametrize("name", ["build_model", "Net", "ready"])
def test_functions_classes_and_models_are_loaded(folder, name):
    before = list(sys.path)
    assert load_model(f"{folder}/model.py:{name}").width == 7
    assert sys.path == before


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("model.py", "form file.py:name"),
        ("{0}/nothing.py:x", "there is no file"),
        ("{0}/model.py:build_modle", "Did you mean 'build_model'"),
        ("{0}/model.py:broken", "ValueError: no weights"),
        ("{0}/bad.py:x", "cannot be run: ModuleNotFoundError"),
    ],
)
def test_errors_name_the_cause(folder, place, reason):
    with pytest.raises(InputError, match=reason):
        load_model(place.format(folder))


@pytest.mark.parametrize("text", ["", "3x", "0x3", "3,224,224", "axb", "-3"])
def test_invalid_shapes_are_rejected(text):
    with pytest.raises(InputError, match="such as 3x224x224"):
        parse_shape(text)


def test_several_inputs_are_told_where_they_are_taken():
    with pytest.raises(InputError, match=r"OpGraph\.from_torch\(net, \[\(8,\), \(16,\)\]\)"):
        parse_shape("8,16")

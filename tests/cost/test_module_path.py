"""Networks by module path: traced elsewhere as here, in safe-path mode, and a sentence for what goes wrong."""

from __future__ import annotations

import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.cost.graph import OpGraph
from gpudemand.cost.module_path import NetworkTracer

NETWORKS = """
import os, sys

class Nothing:
    pass

def fails():
    raise RuntimeError("no data")

def ends():
    print("to standard output")
    sys.stderr.write("out of luck")
    sys.stderr.flush()
    os._exit(3)

def net():
    import torch
    torch.manual_seed(0)
    print("built")
    return torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten())
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "own_networks.py").write_text(NETWORKS)
    return tmp_path


@pytest.fixture(scope="module")
def tracer(tmp_path_factory):
    """One process for networks that cannot be traced, but for one that ends it."""
    folder = tmp_path_factory.mktemp("networks")
    (folder / "own_networks.py").write_text(NETWORKS)
    with NetworkTracer(folder) as tracer:
        yield tracer


@pytest.mark.slow
def test_a_graph_from_another_process_is_the_graph(folder, monkeypatch):
    torch = pytest.importorskip("torch")
    # In safe-path mode, and with the folder last, no file there takes the place of a library.
    (folder / "torch.py").write_text("raise SystemExit('not the library')")
    (folder / "json.py").write_text("raise SystemExit('not the library')")
    monkeypatch.chdir(folder)
    with NetworkTracer(folder) as tracer:
        found = tracer.trace("own_networks:net", (3, 32, 32))
    layers = (torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten())
    here = OpGraph.from_torch(torch.nn.Sequential(*layers), (3, 32, 32))
    for name, value in vars(here).items():
        if isinstance(value, pd.DataFrame):
            pd.testing.assert_frame_equal(getattr(found, name), value)
        elif name == "edges":
            assert found.edges.tolist() == value.tolist()
        else:
            assert getattr(found, name) == value, name


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("no_such:net", "'no_such' cannot be imported .*beside the plan"),
        ("own_networks:ney", "own_networks has no 'ney'. Did you mean 'net'"),
        ("own_networks:fails", r"fails\(\) of own_networks failed: RuntimeError: no data"),
        ("own_networks:Nothing", "must be a torch.nn.Module, a keras.Model or an OpGraph; got Nothing"),
        ("own_networks:ends", "'own_networks:ends' ended its process: out of luck"),
    ],
)
def test_what_goes_wrong_is_one_sentence(tracer, place, said):
    with pytest.raises(InputError, match=said):
        tracer.trace(place, (3, 32, 32))


@pytest.mark.slow
def test_one_process_traces_until_a_network_ends_it(folder):
    pytest.importorskip("torch")
    with NetworkTracer(folder) as tracer:
        first = tracer.trace("own_networks:net", (3, 32, 32))
        process = tracer._child
        with pytest.raises(InputError, match="no data"):
            tracer.trace("own_networks:fails", (3, 32, 32))
        assert tracer._child is process
        with pytest.raises(InputError, match="out of luck"):
            tracer.trace("own_networks:ends", (3, 32, 32))
        again = tracer.trace("own_networks:net", (3, 32, 32))
    assert process.ended
    pd.testing.assert_frame_equal(first.nodes, again.nodes)

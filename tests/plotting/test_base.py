"""Contract of every Display: the constructor stores, few parameters, no matplotlib on import."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from gpudemand import plotting

DISPLAYS = [getattr(plotting, name) for name in plotting.__all__ if name.endswith("Display")]


@pytest.mark.parametrize("display", DISPLAYS)
def test_constructors_have_at_most_six_parameters_and_store_them(display):
    parameters = [name for name in inspect.signature(display.__init__).parameters if name != "self"]
    assert len(parameters) <= 6
    given = {name: object() for name in parameters}
    made = display(**given)
    assert {name: getattr(made, name) for name in parameters} == given
    assert list(inspect.signature(display.plot).parameters) == ["self", "ax"]


@pytest.mark.slow
def test_import_does_not_load_matplotlib():
    code = "import sys, gpudemand.plotting; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

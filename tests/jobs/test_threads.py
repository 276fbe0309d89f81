"""Quirks that public threads tell of, in logs of our own: each is read right, or something is said."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any

import pytest

import gpudemand as gd
from gpudemand._validation import InputError

PLACE = Path(__file__).parent / "fixtures" / "threads"
CASES = json.loads((PLACE / "cases.json").read_text(encoding="utf-8"))


def figures(case: dict[str, Any]) -> object:
    """What the case has the right figures of: GPUs that wait, the most held at once, or GPU-hours, by user."""
    path, form, arguments = PLACE / case["file"], case["format"], case["arguments"]
    if case["figure"] == "held":
        return gd.read_usage(path, form, **arguments).groupby("unique_id")["y"].max().to_dict()
    jobs = gd.read_jobs(path, form, **arguments)
    if case["figure"] == "waiting":
        return float(jobs["gpus"][jobs["status"] == "pending"].sum())
    hours = gd.usage_series(jobs, by="user", value="gpu_hours").groupby("unique_id")["y"].sum()
    return {user: round(float(y), 6) for user, y in hours.items() if y}


@pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])
def test_the_figures_are_right_or_something_is_said(case: dict[str, Any]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found, said = figures(case), ""
        except InputError as error:
            found, said = None, str(error)
    said += " ".join(str(warning.message) for warning in caught)
    if found != case["right"]:
        assert re.search(case["words"] or "(?!)", said), (found, said)
    assert not (case["silent"] and said)


def test_each_case_has_a_line_in_the_documentation() -> None:
    place = Path(gd.__file__).parents[1] / "docs/explanation/cases.md"
    if not place.is_file():
        pytest.skip("runs from a checkout")
    lines = place.read_text(encoding="utf-8")
    assert [case["case"] for case in CASES if f"| {case['case']} |" not in lines] == []

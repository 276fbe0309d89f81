"""Measurements that are prepared for a GPU, tried on the processor at hand."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

torch = pytest.importorskip("torch")
main = pytest.importorskip("benchmarks.cost.on_gpu.__main__", reason="runs from a checkout")
Sampling = pytest.importorskip("benchmarks.measure.meter").Sampling
SMALL = main.decoders.Decoder(128, 1, 16, precision="fp32")


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setattr(main, "_SAMPLING", Sampling(steps=2, warmup=1, min_time_s=0.0))


@pytest.mark.slow
def test_rows_are_measured_once_and_compared(tmp_path):
    out = tmp_path / "rows.csv"
    designs = [SMALL, replace(SMALL, attention="eager", checkpointing=1, lora=1)]
    main.measure_designs(designs[:1], out, "cpu", 1.0)
    first = out.read_text()
    main.measure_designs(designs, out, "cpu", 1.0)
    assert out.read_text().startswith(first)
    rows = pd.read_csv(out)
    assert rows["status"].tolist() == ["ok", "ok"]
    assert (rows["step_time_s"] > 0).all()
    trained = [main.decoders.VOCABULARY * 128, 0]
    assert (rows["parameters"] > trained).all()
    assert rows["parameters"].iloc[1] < rows["parameters"].iloc[0]
    table = main.compare("decoders", out, "H200")
    assert table["group"].tolist() == ["flash", "eager, LoRA"]
    assert (table["predicted"] > 0).all()


def test_an_error_ends_the_run_with_its_row(tmp_path):
    out = tmp_path / "rows.csv"
    wrong = replace(SMALL, hidden=100)  # no multiple of a head
    with pytest.raises(SystemExit, match="start it again"):
        main.measure_designs([wrong, SMALL], out, "cpu", 1.0)
    main.measure_designs([wrong, SMALL], out, "cpu", 1.0)
    assert pd.read_csv(out)["status"].tolist() == ["error", "ok"]


@pytest.mark.parametrize("kind", main.operators.OPERATORS)
def test_every_operator_trains(kind):
    sizes = [min(values) for values in main.operators.OPERATORS[kind][2]]
    session = main.ModuleSession(main.Measured(main.operators.OneOperator(kind, *sizes, 2, "fp32"), "cpu"))
    assert session.timed_step() > 0


@pytest.mark.slow
def test_kernels_are_counted():
    plan = {job.network: job for job in main.kernels.plan("cpu")}
    assert len(plan) == 20
    row = main.kernels.measure(replace(plan["alexnet"], batch_size=1, precision="fp32"))
    # On a processor a kernel of the tracer is one or more operators.
    assert row["recorded"] > 30
    assert row["launched"] > row["recorded"] / 2
    assert row["kernel_s"] > 0


def test_the_plans_are_as_large_as_they_should_be():
    assert len(set(main.decoders.plan())) == 60
    assert len(set(main.operators.plan(main.PLAN))) == 200


def test_a_profile_says_how_fast_the_host_was():
    profiles = pytest.importorskip("benchmarks.cost.on_gpu.profiles")
    net, setting = torch.nn.Linear(4, 10), profiles.Setting("zoo:none", "train", 2, "fp32", "adam", "contiguous")
    row = profiles.measured(profiles.Run(setting, net, (4,), None, "cpu"), seconds=0.0)
    assert set(row) <= set(profiles.COLUMNS)
    assert 0 < row["launch_s"] < row["host_forward_s"]  # which is many of them
    assert row["n_steps"] == 6

import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from gpudemand.datasets.registry import bundled_path, load_jobs_sample, load_truth_sample
from gpudemand.jobs.schema import COLUMNS
from gpudemand.jobs.table import rejections

sample = pytest.importorskip("scripts.make_sample", reason="runs from a checkout")
known = pytest.importorskip("benchmarks.planning.truth", reason="runs from a checkout")


def test_the_script_reproduces_the_sample():
    jobs, truth = sample.make_sample()
    assert_frame_equal(load_jobs_sample(), jobs, check_exact=True)
    assert_frame_equal(load_truth_sample(), truth, check_exact=True)
    assert load_truth_sample().attrs == truth.attrs


def test_the_sample_is_a_valid_job_log():
    jobs = load_jobs_sample()
    assert list(jobs.columns[: len(COLUMNS)]) == list(COLUMNS)
    assert rejections(jobs).isna().all()
    assert jobs.attrs["kind"] == "synthetic"
    assert 6 <= jobs["group"].nunique() <= 8
    assert jobs["gpu_type"].nunique() >= 3
    assert {"running", "completed", "failed", "cancelled", "timeout"} <= set(jobs["status"])


def test_the_sample_grows_to_several_hundred_gpus():
    jobs = load_jobs_sample()
    last = jobs["submit"].max().floor("D")
    month = pd.timedelta_range("0D", "28D", freq="7h")
    held = sum(_held(jobs, last - ago) for ago in month) / len(month)
    earlier = sum(_held(jobs, last - pd.Timedelta("210D") - ago) for ago in month) / len(month)
    assert 300 < held < 500
    assert held > 1.3 * earlier


def _held(jobs, time):
    return jobs.loc[(jobs["start"] <= time) & ~(jobs["end"] <= time), "gpus"].sum()


def test_truth_gives_expected_usage():
    truth = load_truth_sample()
    per_user = known.expected_usage(truth).groupby("unique_id")["y"].mean()
    assert (per_user / truth.set_index("user")["gpu_hours_per_day"] - 1).abs().max() < 1e-6


def test_the_sample_is_small():
    assert sum(bundled_path(f"sample/{name}.parquet").stat().st_size for name in ("jobs", "truth")) < 4_000_000


def test_write_sample_updates_checksums(tmp_path, monkeypatch):
    jobs, truth = sample.make_sample()
    monkeypatch.setattr("scripts.make_sample.make_sample", lambda: (jobs.head(50), truth))
    (tmp_path / "sample").mkdir()
    (tmp_path / "registry.json").write_text('{"bundled": [{"path": "sample/jobs.parquet"}, {"path": "other.csv"}]}')
    sample.write_sample(tmp_path)
    rows = pd.read_json(tmp_path / "registry.json")["bundled"].tolist()
    assert rows[0]["bytes"] == (tmp_path / "sample" / "jobs.parquet").stat().st_size
    assert rows[1] == {"path": "other.csv"}

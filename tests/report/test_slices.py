"""Parts of GPUs by kind, in stages and on the page."""

from __future__ import annotations

import pandas as pd
import pytest

import gpudemand as gd
from gpudemand.datasets import make_cluster
from gpudemand.study.settings import Settings
from gpudemand.study.source import JobSource
from gpudemand.study.usage_tables import compute_usage_tables, log_tables, usage_by_gpu_type
from gpudemand.units import mark_fractions, usage_by_slice


def types(*names):
    return pd.DataFrame({"gpu_type": pd.Series(names, dtype="string"), "gpu_hours": 1.0})


@pytest.mark.parametrize(
    ("name", "kind", "share"),
    [
        ("1g.10gb", "MIG slice", 1 / 7),
        ("nvidia_com_mig_3g_40gb", "MIG slice", 1 / 2),
        ("shard", "shard", None),
        ("mps", "MPS", None),
        ("1g.10gb+a100", "MIG slice + whole GPU", None),
        ("mps+shard", "MPS + shard", None),
    ],
)
def test_kind_and_share(name, kind, share):
    table = usage_by_slice(types("a100", name))
    assert table["kind"].tolist() == [kind]
    assert table["gpu_type"].tolist() == [name]
    assert table["gpu_share"].isna().all() if share is None else table["gpu_share"].iloc[0] == pytest.approx(share)


def test_gpu_hours_of_a_real_log(fixture_jobs):
    source = JobSource.of(fixture_jobs, Settings())
    table = usage_by_slice(usage_by_gpu_type(source))
    start, end = (fixture_jobs[name].clip(upper=source.settings.until) for name in ("start", "end"))
    held = (end - start).dt.total_seconds() / 3600 * fixture_jobs["gpus"]
    expected = held.groupby(fixture_jobs["gpu_type"]).sum()
    of = table.set_index("gpu_type")["gpu_hours"]
    assert sorted(of.index) == ["1g.10gb", "1g.10gb+a100", "1g.10gb+a100+h100", "shard"]
    pd.testing.assert_series_equal(
        of.sort_index(), expected[sorted(of.index)], check_names=False, check_index_type=False
    )


@pytest.fixture
def fixture_jobs():
    """Jobs of a real Slurm with slices and shards that have all ended."""
    from tests.pull.conftest import HISTORY

    with pytest.warns(gd.RejectedRowsWarning, match="job step"), pytest.warns(gd.UnlikelyJobsWarning, match="array"):
        jobs = gd.read_jobs(HISTORY, format="sacct", tz="UTC", shards_per_gpu=4)
    return jobs[jobs["end"].notna() & jobs["start"].notna()].reset_index(drop=True)


@pytest.fixture
def log():
    jobs, _ = make_cluster(n_users=8, n_days=60, random_state=0)
    return jobs.assign(gpu_type=pd.Series(["a100", "1g.10gb"] * len(jobs), dtype="string")[: len(jobs)])


def test_fractions_of_cards_that_are_named(log):
    """Time-slicing, and shards and MPS by the type of their card; the sum of whole ones is whole."""
    gpus = log["gpus"].astype(float).where(log["gpu_type"] != "1g.10gb", 1 / 7)
    gpus = gpus.mask(log.index % 4 == 0, 0.25)
    jobs = log.assign(gpus=gpus, gpu_type=log["gpu_type"].mask(log.index % 8 == 0))
    source = JobSource.of(jobs, Settings())
    table = log_tables(source, compute_usage_tables(source).held)["slices"].set_index(["kind", "gpu_type"])
    assert sorted(table.index) == [("MIG slice", "1g.10gb"), ("fraction", "a100"), ("fraction", "unknown")]
    end = jobs["end"].fillna(source.settings.until).clip(upper=source.settings.until)
    held = (end - jobs["start"]).dt.total_seconds() / 3600 * gpus
    kind = jobs["gpu_type"].fillna("unknown").astype(str)
    for (_, name), hours in table["gpu_hours"].items():
        chosen = kind.eq(name) & (gpus % 1 != 0)
        assert hours == pytest.approx(held[chosen].sum())
        assert table.loc[(slice(None), name), "jobs"].tolist() == [chosen.sum()]


def test_shards_of_a_named_card_are_fractions_of_it(tmp_path):
    rows = ["JobIDRaw|User|State|Submit|Start|End|AllocTRES"]
    for number, tres in enumerate(("gres/shard:h100=1", "gres/mps:h100=50", "gres/gpu:h100=1", "gres/shard:h100=4")):
        rows.append(f"{number}|ada|COMPLETED|1772000000|1772000000|1772003600|{tres}")
    (tmp_path / "dump.psv").write_text("\n".join([*rows, ""]))
    jobs = gd.read_jobs(tmp_path / "dump.psv", format="sacct", tz="UTC", shards_per_gpu=4)
    assert mark_fractions(jobs)["gpu_type"].tolist() == ["h100 (fraction)"] * 2 + ["h100"] * 2


@pytest.mark.slow
def test_on_the_page_only_where_there_are_any(log, tmp_path, quick, undrawn, brief):
    page = gd.build_report(log, tmp_path / "slices", horizon=7).read_text()
    assert "Parts of GPUs" in page
    assert "<td>14.3%</td>" in page[page.index("Parts of GPUs") :][:2000]
    assert (tmp_path / "slices" / "tables" / "slices.csv").exists()
    whole = gd.build_report(log.assign(gpu_type="a100"), tmp_path / "whole", horizon=7)
    assert "Parts of GPUs" not in whole.read_text()
    assert not (tmp_path / "whole" / "tables" / "slices.csv").exists()

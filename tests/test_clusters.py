"""One, several or all clusters of a log, together or each a pool of its own."""

from __future__ import annotations

import pandas as pd
import pytest
from typer.testing import CliRunner

from gpudemand import Study, write_jobs
from gpudemand._validation import InputError
from gpudemand.cli.app import app
from gpudemand.planning import Programme
from gpudemand.report.history import settings_of
from gpudemand.study.pools import select_clusters
from tests.report.conftest import make_log, quick_module, selected_once, undrawn  # noqa: F401

LOG = make_log(days=40)
ATTRS = LOG.attrs
LOG = LOG.assign(cluster=pd.Series(["alpha", "beta", "alpha", "gamma"] * (len(LOG) // 4), dtype=LOG["cluster"].dtype))
LOG.attrs = ATTRS
OPTIONS = {"horizon": 4, "lead_time": "2D"}
pytestmark = pytest.mark.usefixtures("quick_module", "selected_once", "undrawn")


def test_selected_clusters_are_a_log_of_their_own():
    one = LOG[LOG["cluster"] == "alpha"]
    one.attrs = LOG.attrs
    pd.testing.assert_frame_equal(Study(LOG, cluster="alpha", **OPTIONS).usage, Study(one, **OPTIONS).usage)
    two = LOG[LOG["cluster"] != "gamma"]
    for names in ("beta,alpha", ["alpha", "beta"]):
        pd.testing.assert_frame_equal(Study(LOG, cluster=names, **OPTIONS).usage, Study(two, **OPTIONS).usage)


@pytest.mark.parametrize("names", [{"alpha": "alpha ", "beta": "beta"}, {"alpha": 1, "beta": 2}])
def test_a_cluster_is_selected_by_the_name_that_its_log_is_read_with(names):
    jobs = pd.DataFrame({"cluster": LOG["cluster"].map(names).astype(object), "gpus": 1})
    wanted = str(names["alpha"]).strip()
    assert select_clusters(jobs, wanted).index.equals(LOG.index[LOG["cluster"] == "alpha"])


@pytest.mark.parametrize(
    ("cluster", "named"), [(None, None), ("beta, alpha", ["alpha", "beta"]), (["gamma"], ["gamma"]), ("each", ["each"])]
)
def test_settings_of_a_report_name_the_clusters(cluster, named):
    assert settings_of(Study(LOG, cluster=cluster, **OPTIONS))["cluster"] == named


@pytest.mark.slow
def test_each_cluster_is_a_row_of_the_plan(tmp_path):
    installed = {"alpha": 30, "beta": 20.0, "gamma": 2, "delta": 5}
    study = Study(LOG, cluster="each", installed=installed, **OPTIONS)
    plan = study.plan.set_index("cluster")
    assert plan.index.tolist() == ["all, as one pool", "alpha", *plan.index[2:4], "delta"]
    assert plan.loc[list(installed), "installed"].to_dict() == installed
    assert plan["installed"].iloc[0] == 57
    assert plan["required"].iloc[1:].sum() >= plan["required"].iloc[0]
    assert plan.loc["gamma", "shortfall"] == plan.loc["gamma", "required"] - 2 > 0
    assert study.headline["pool"] == "cluster"
    assert study.gpu_type_plans.table["installed"].iloc[1:].isna().all()
    page = study.report(tmp_path / "report").read_text()
    assert "<h3>By cluster</h3>" in page
    assert "By cluster, each a pool of its own" in page


@pytest.mark.slow
def test_work_to_come_counts_in_the_plans_of_clusters():
    begin, hours = LOG["end"].max() - pd.Timedelta("1D"), 24.0 * 60
    work = [Programme("work", 1, begin, begin + pd.Timedelta("60D"), hours=hours, gpus=30, gpu_type="H100")]
    more, alone = (
        Study(LOG, cluster="each", programmes=programmes, **OPTIONS).plan.set_index("cluster")["required"]
        for programmes in (work, ())
    )
    added = (more - alone).drop("all, as one pool")
    assert (added > 0).all()
    assert added.sum() == pytest.approx(30, abs=3)


def test_names_are_known_or_refused():
    with pytest.raises(InputError, match=r"no cluster 'alfa'.*alpha"):
        Study(LOG, cluster="alfa")
    with pytest.raises(InputError, match="names no clusters"):
        Study(make_log(days=40), cluster="each")
    with pytest.raises(InputError, match=r"no value for 'beta'.*each cluster"):
        Study(LOG, cluster="each", installed={"alpha": 1, "gamma": 2})


def test_the_shell_selects(tmp_path):
    write_jobs(LOG, tmp_path / "jobs.parquet")
    command = ["report", str(tmp_path / "jobs.parquet"), "--quiet", "--cluster", "alpa"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2
    assert "no cluster 'alpa'" in result.output

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from gpudemand._validation import InputError
from gpudemand.datasets import make_cluster, true_step_time
from gpudemand.datasets.simulate import ARCHETYPES, read_shares
from gpudemand.jobs.schema import COLUMNS, STATUSES
from gpudemand.jobs.table import rejections

SEEDS = range(6)


@pytest.fixture(scope="module")
def clusters():
    return [make_cluster(random_state=seed) for seed in SEEDS]


@pytest.fixture(scope="module")
def cluster(clusters):
    return clusters[0]


@pytest.fixture
def known():
    return pytest.importorskip("benchmarks.planning.truth", reason="runs from a checkout")


def hours_since_start(times, truth):
    return (times - pd.Timestamp(truth.attrs["start"], tz="UTC")).dt.total_seconds().to_numpy() / 3600


def held(jobs, truth, step_h):
    """GPU-hours in each step of the log, exactly: the difference of the integrals of two step functions."""
    length = truth.attrs["n_days"] * 24
    begin = np.nan_to_num(hours_since_start(jobs["start"], truth), nan=length)
    end = np.minimum(np.nan_to_num(hours_since_start(jobs["end"], truth), nan=length), length)
    edges = np.arange(0, length + 1, step_h, dtype=float)
    gpus = jobs["gpus"].to_numpy()
    return np.diff(_integral(begin, gpus, edges) - _integral(end, gpus, edges))


def _integral(times, weights, edges):
    order = np.argsort(times)
    count = np.searchsorted(times[order], edges)
    total = np.append(0, np.cumsum(weights[order]))[count]
    return total * edges - np.append(0, np.cumsum((weights * times)[order]))[count]


def gpu_hours_by_user(jobs, truth):
    totals = {user: held(jobs[jobs["user"] == user], truth, 24) for user in truth["user"]}
    return pd.DataFrame(totals)


@pytest.mark.parametrize("seed", SEEDS)
def test_concentration_and_idle_days_are_in_the_range_of_traces(clusters, seed):
    jobs, truth = clusters[seed]
    days = gpu_hours_by_user(jobs, truth)
    total = days.sum().sort_values(ascending=False)
    assert 0.50 <= total.iloc[:10].sum() / total.sum() <= 0.60
    assert 0.55 <= (days < 1e-6).to_numpy().mean() <= 0.95


@pytest.mark.parametrize("seed", SEEDS)
def test_the_hourly_total_is_autocorrelated_at_a_day(clusters, seed):
    y = held(*clusters[seed], 1)
    y = y - y.mean()
    assert 0.4 <= (y[24:] * y[:-24]).sum() / (y**2).sum() <= 0.9


@pytest.mark.parametrize("seed", SEEDS)
def test_distributions_of_jobs_are_in_the_range_of_traces(clusters, seed):
    jobs, _ = clusters[seed]
    share = jobs["gpus"].value_counts(normalize=True)
    assert share[[1, 2, 4, 8]].sum() > 0.85
    assert 0.005 < share[[16, 32]].sum() < 0.15
    run_s = (jobs["end"] - jobs["start"]).dt.total_seconds()
    assert run_s.mean() > 1.5 * run_s.median()
    assert run_s.quantile(0.99) > 8 * run_s.median()
    wait_s = (jobs["start"] - jobs["submit"]).dt.total_seconds()
    assert wait_s.median() < 60
    assert wait_s.quantile(0.99) > 3600
    status = jobs["status"].value_counts(normalize=True)
    assert status["completed"] > 0.6
    assert min(status["failed"], status["cancelled"], status["timeout"]) > 0.02


def test_canonical_rules_hold(clusters):
    for jobs, truth in clusters:
        assert list(jobs.columns[: len(COLUMNS)]) == list(COLUMNS)
        assert rejections(jobs).isna().all()
        assert jobs["submit"].is_monotonic_increasing
        assert jobs["job_id"].is_unique
        assert set(jobs["status"]) <= set(STATUSES)
        assert set(jobs["user"]) <= set(truth["user"])
        assert jobs.attrs["kind"] == truth.attrs["kind"] == "synthetic"


def test_the_log_is_censored_at_its_end(clusters):
    for jobs, truth in clusters:
        end = pd.Timestamp(truth.attrs["start"], tz="UTC") + pd.Timedelta(days=truth.attrs["n_days"])
        assert jobs[["submit", "start", "end"]].max().max() <= end
        running = jobs["status"] == "running"
        assert running.any()
        assert (jobs["end"].isna() == jobs["status"].isin(["running", "pending"])).all()
        assert (jobs["start"].isna() == (jobs["status"] == "pending")).all()


def test_completed_jobs_run_for_the_true_run_time(cluster, known):
    jobs, truth = cluster
    done = jobs[jobs["status"] == "completed"]
    user = truth.set_index("user").loc[done["user"]]
    steps = np.ceil(done["samples"] / (done["batch_size"] * done["gpus"])).to_numpy() * done["epochs"].to_numpy()
    by_hand = 60 + steps * true_step_time(done) * user["efficiency"].to_numpy()
    np.testing.assert_allclose(known.true_run_time(done, truth), by_hand)
    noise = np.log((done["end"] - done["start"]).dt.total_seconds().to_numpy() / by_hand)
    long = by_hand > 3600
    assert abs(noise[long].mean()) < 0.001
    assert 0.015 < noise[long].std() < 0.025


def test_stopped_jobs_run_shorter_and_timeouts_to_their_limit(cluster, known):
    jobs, truth = cluster
    stopped = jobs[jobs["status"].isin(["failed", "cancelled", "timeout"])]
    ran = (stopped["end"] - stopped["start"]).dt.total_seconds()
    assert (ran <= 1.1 * known.true_run_time(stopped, truth)).all()
    at_limit = (ran == stopped["requested_time"]).to_numpy()
    assert at_limit[stopped["status"] == "timeout"].all()
    finished = jobs[jobs["end"].notna()]
    assert ((finished["end"] - finished["start"]).dt.total_seconds() <= finished["requested_time"]).all()


def test_expected_usage_is_unbiased(clusters, known):
    ratios = []
    for jobs, truth in clusters:
        expected = known.expected_usage(truth)
        assert len(expected) == len(truth) * truth.attrs["n_days"]
        assert (expected["y"] >= 0).all()
        ratios.append(held(jobs, truth, 24).sum() / expected["y"].sum())
    assert np.mean(ratios) == pytest.approx(1, abs=0.03)


def test_expected_usage_needs_the_attrs(cluster, known):
    bare = cluster[1].copy()
    bare.attrs = {}
    with pytest.raises(InputError, match="lost its attrs"):
        known.expected_usage(bare)


def test_weekday_users_submit_few_jobs_on_weekends(cluster):
    jobs, truth = cluster
    users = truth.loc[truth["archetype"] == "weekday", "user"]
    weekday = jobs.loc[jobs["user"].isin(users), "submit"].dt.day_of_week
    assert (weekday >= 5).mean() < 0.12


def test_the_share_of_newer_gpus_grows(cluster):
    jobs, _ = cluster
    month = jobs["submit"].dt.month
    new = jobs["gpu_type"].isin(["H100", "H200"])
    assert new[month == month.max()].mean() > new[month == 1].mean()


def test_gpus_run_supported_precisions_only(cluster):
    jobs, _ = cluster
    assert set(jobs.loc[jobs["gpu_type"] == "V100", "precision"]) == {"fp32", "fp16"}


def test_same_seed_same_log_and_no_global_state():
    np.random.seed(1)  # noqa: NPY002 - the global state must stay as it is
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first, second = make_cluster(10, 30, random_state=7), make_cluster(10, 30, random_state=7)
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002
    for one, other in zip(first, second, strict=True):
        assert_frame_equal(one, other, check_exact=True)
    assert not make_cluster(10, 30, random_state=8)[0].equals(first[0])


def test_a_generator_is_advanced():
    rng = np.random.default_rng(0)
    first, second = make_cluster(3, 20, random_state=rng)[1], make_cluster(3, 20, random_state=rng)[1]
    assert not first.equals(second)


@pytest.mark.parametrize("name", ARCHETYPES)
def test_a_single_archetype(name):
    jobs, truth = make_cluster(8, 60, archetypes=[name], random_state=0)
    assert set(truth["archetype"]) == {name}
    assert len(jobs) > 0


def test_counts_follow_the_shares():
    _, truth = make_cluster(40, 30, archetypes={"steady": 3, "burst": 1}, random_state=0)
    assert truth["archetype"].value_counts().to_dict() == {"steady": 30, "burst": 10}


def test_archetypes_have_their_patterns(known):
    shape = {}
    for name in ("steady", "burst", "ramp", "seasonal"):
        _, truth = make_cluster(30, 180, archetypes=[name], growth=0, signal_to_noise=np.inf, random_state=1)
        wide = known.expected_usage(truth).pivot(index="ds", columns="unique_id", values="y").rolling(7).mean().iloc[6:]
        shape[name] = wide / wide.max()
    assert (shape["steady"] > 0.99).all(axis=None)
    assert (shape["burst"] == 0).mean().min() > 0.7
    assert (shape["ramp"].tail(60).max() > shape["ramp"].head(60).max()).mean() > 0.8
    assert (shape["seasonal"] == 0).mean().mean() > 0.2


def test_signal_to_noise_sets_the_share_of_jobs_in_the_pattern():
    in_the_evening = []
    for ratio in (0, 1, 4, np.inf):
        jobs, truth = make_cluster(20, 120, archetypes=["nightly"], signal_to_noise=ratio, random_state=0)
        hour = jobs["submit"].dt.hour + jobs["submit"].dt.minute / 60
        away = (hour - jobs["user"].map(truth.set_index("user")["rhythm_hour"]) + 12) % 24 - 12
        in_the_evening.append((away.abs() < 3).mean())
    assert in_the_evening == sorted(in_the_evening)
    assert in_the_evening[0] == pytest.approx(0.25, abs=0.06)
    assert in_the_evening[1] == pytest.approx(0.625, abs=0.06)
    assert in_the_evening[3] == 1


def test_hours_of_the_pattern_are_local():
    def hours(tz):
        jobs, _ = make_cluster(
            10, 60, archetypes=["nightly"], signal_to_noise=np.inf, start="2025-06-02", tz=tz, random_state=0
        )
        return jobs["submit"]

    shift = hours("UTC") - hours("Asia/Tokyo")
    assert shift.eq(pd.Timedelta(hours=9)).all()
    # A zone with two clock changes.
    jobs, truth = make_cluster(20, 365, tz="America/New_York", random_state=0)
    assert rejections(jobs).isna().all()
    assert truth["active_from"].min() == pd.Timestamp("2026-01-05 05:00", tz="UTC")


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("n_users", "n_days"), [(1, 1), (1, 40), (3, 1)])
def test_the_smallest_clusters_are_valid(n_users, n_days, seed, known):
    jobs, truth = make_cluster(n_users, n_days, random_state=seed)
    assert len(truth) == n_users
    assert rejections(jobs).isna().all()
    assert len(known.expected_usage(truth)) == n_users * n_days


def test_demand_scales_with_size_and_growth(known):
    small, large = (make_cluster(30, 60, gpus_per_user=size, random_state=0) for size in (1, 4))
    assert 3 < held(*large, 24).sum() / held(*small, 24).sum() < 5
    flat, steep = (
        known.expected_usage(make_cluster(30, 60, archetypes=["steady"], growth=growth, random_state=0)[1])
        for growth in (0, 5)
    )
    assert flat.groupby("ds")["y"].sum().nunique() < steep.groupby("ds")["y"].sum().nunique() == 60


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"n_users": 0}, "n_users must be a whole number"),
        ({"n_users": 2.5}, "n_users"),
        ({"n_days": -1}, "n_days"),
        ({"n_users": 1_000_000, "n_days": 30_000}, "do not fit"),
        ({"signal_to_noise": -1}, "signal_to_noise"),
        ({"signal_to_noise": np.nan}, "signal_to_noise"),
        ({"gpus_per_user": 0}, "gpus_per_user"),
        ({"growth": -0.5}, "growth"),
        ({"archetypes": ["stedy"]}, "Did you mean 'steady'"),
        ({"archetypes": "steady"}, "list of names"),
        ({"archetypes": 3}, "list of names"),
        ({"archetypes": {}}, "no positive share"),
        ({"archetypes": {"steady": -1}}, "archetypes"),
        ({"start": "soon"}, "is not a day"),
        ({"start": "10.02.2026"}, "is not a day"),
        ({"start": None}, "must be a day"),
        ({"start": "2026-01-05 07:00"}, "without clock time"),
        ({"start": "9999-01-01"}, "start="),
        ({"tz": "Mars/Olympus"}, "not a known time zone"),
        ({"tz": None}, "not a known time zone"),
        ({"random_state": "seed"}, "random_state"),
        ({"random_state": -1}, "random_state"),
    ],
)
def test_invalid_arguments_are_an_error(bad, message):
    with pytest.raises(InputError, match=message):
        make_cluster(**bad)


def test_step_time_of_unknown_hardware_is_an_error(cluster):
    job = cluster[0].head(1)
    for column, value in (("network", "resnet51"), ("gpu_type", "A101"), ("precision", "fp31")):
        with pytest.raises(InputError, match="Did you mean"):
            true_step_time(job.assign(**{column: value}))
    with pytest.raises(InputError, match="does not run"):
        true_step_time(job.assign(gpu_type="V100", precision="bf16"))
    with pytest.raises(InputError, match="missing"):
        true_step_time(cluster[0].head(2).assign(network=["resnet50", None]))


def test_step_time_is_plausible():
    grid = pd.DataFrame({"gpu_type": ["V100", "A100", "H100"], "network": "resnet50", "precision": "fp16"})
    images = 128 / true_step_time(grid.assign(batch_size=128, gpus=1))
    assert (np.diff(images) > 0).all()
    assert 1000 < images[0] < 1500
    assert 2000 < images[1] < 3500
    eight, many = (true_step_time(grid.assign(batch_size=128, gpus=gpus)) for gpus in (8, 64))
    assert (many > eight).all()


def test_run_time_of_unknown_users_is_an_error(cluster, known):
    jobs, truth = cluster
    with pytest.raises(InputError, match="users that truth lacks"):
        known.true_run_time(jobs, truth.iloc[:1])


def test_default_shares_sum_to_one():
    assert sum(read_shares(None).values()) == pytest.approx(1)

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from gpudemand._validation import RejectedRowsWarning, UnlikelyJobsWarning
from gpudemand.jobs import read_jobs


@pytest.fixture(params=["csv", "parquet"])
def bill(request: pytest.FixtureRequest, fixtures: Path, tmp_path: Path) -> Path:
    if request.param == "csv":
        return fixtures / "focus.csv"
    frame = pd.read_csv(fixtures / "focus.csv", parse_dates=["ChargePeriodStart", "ChargePeriodEnd"])
    frame.to_parquet(tmp_path / "focus.parquet")
    return tmp_path / "focus.parquet"


def test_usage_is_read_and_other_charges_are_counted(bill: Path) -> None:
    with pytest.warns(RejectedRowsWarning):
        jobs = read_jobs(bill, "focus", strict=True)
    assert jobs["gpus"].tolist() == [8, 0.5]
    assert jobs["user"].tolist() == ["ada", "Research"]
    assert jobs["effective_cost"].tolist() == [768, 1.5]
    assert jobs.loc[0, ["group", "cluster", "resource_id"]].tolist() == ["Research", "eu-west-1", "i-1"]
    assert jobs.attrs["rejected"] == {
        "unused commitment": 1,
        "usage not measured in hours": 1,
        "charge that is no usage": 1,
    }


def test_two_charges_of_one_resource_and_hour_both_count(write) -> None:
    row = "2024-05-01T00:00:00Z,2024-05-01T01:00:00Z,0.5,GPU-Hours,i-1\n"
    jobs = read_jobs(
        write("ChargePeriodStart,ChargePeriodEnd,ConsumedQuantity,ConsumedUnit,ResourceId\n" + 2 * row), "focus"
    )
    assert jobs["gpus"].sum() == 1


def test_a_period_without_length_is_refused(write) -> None:
    hour = "2024-05-01T00:00:00Z,2024-05-01T01:00:00Z,1,GPU-Hours\n"
    log = "ChargePeriodStart,ChargePeriodEnd,ConsumedQuantity,ConsumedUnit\n" + hour + hour.replace("T01", "T00")
    with pytest.warns(RejectedRowsWarning, match="1 empty charge period"):
        assert len(read_jobs(write(log), "focus")) == 1


HEADER = (
    "ChargePeriodStart,ChargePeriodEnd,ChargeCategory,ChargeClass,ConsumedQuantity,ConsumedUnit,EffectiveCost,"
    "SubAccountName,ResourceId,SkuId,SkuPriceDetails,Tags\n"
)
SILENT = pytest.mark.filterwarnings("ignore::UserWarning")


def bill_of(write, *rows: str) -> pd.DataFrame:
    """Charges of 10 hours of 2026-03-01: class, quantity, unit, cost, resource, details and tags."""
    lines = []
    for row in rows:
        kind, quantity, unit, cost, resource, details, tags = (part.strip() for part in row.split(";", 6))
        texts = ",".join(f'"{text}"'.replace("'", '""') if text else "" for text in (details, tags))
        period = "2026-03-01T00:00:00Z,2026-03-01T10:00:00Z"
        lines.append(f"{period},Usage,{kind},{quantity},{unit},{cost},Platform,{resource},sku,{texts}\n")
    return read_jobs(write(HEADER + "".join(lines)), "focus")


def gpu_hours(jobs: pd.DataFrame) -> dict[str, float]:
    return (jobs["gpus"] * 10).groupby(jobs["user"]).sum().round(6).to_dict()


@SILENT
@pytest.mark.parametrize("name", ["GpuCount", "F_GpuCount", "x_gpu_count"])
def test_gpus_of_a_resource_are_in_the_details_of_its_price(write, name) -> None:
    gpu = f"; 10; Hours; 98; i-1; {{'{name}': 8, 'F_InstanceType': 'p5.48xlarge'}}; {{'team': 'vision'}}"
    cpu = "; 10; Hours; 2; i-2; {'F_CoreCount': 4}; {'team': 'vision'}"
    jobs = bill_of(write, gpu, cpu)
    assert gpu_hours(jobs) == {"vision": 80}
    assert jobs.attrs["rejected"] == {"charge without GPUs": 1}


@SILENT
@pytest.mark.parametrize(
    ("quantity", "unit"),
    [(80, "GPU-Hours"), (80, "gpu hours"), (288000, "GPU-Seconds"), (4800, "GPU-Minutes"), (0.08, "1000 GPU-Hours")],
)
def test_units_that_count_gpus(write, quantity, unit) -> None:
    jobs = bill_of(
        write, f"; {quantity}; {unit}; 9; i-1; ; {{'team': 'vision'}}", "; 10; Hours; 2; i-2; ; {'team': 'x'}"
    )
    assert gpu_hours(jobs) == {"vision": 80}


@SILENT
def test_corrections_are_netted(write) -> None:
    charge, back = "; 80; GPU-Hours; 25; i-1; ; ", "Correction; -30; GPU-Hours; -9; i-1; ; "
    jobs = bill_of(write, charge, back, "Correction; ; ; -9; i-1; ; ")
    assert gpu_hours(jobs) == {"Platform": 50}
    assert jobs["effective_cost"].tolist() == [7]
    assert jobs.attrs["rejected"] == {"correction, netted with its charge": 2}
    jobs = bill_of(write, charge, "Correction; -80; GPU-Hours; -25; i-1; ; ", charge.replace("i-1", "i-2"))
    assert (gpu_hours(jobs), jobs.attrs["rejected"]["charge that was taken back"]) == ({"Platform": 80}, 1)
    jobs = bill_of(write, charge, back.replace("i-1", "i-9"))
    assert jobs.attrs["rejected"] == {"correction without its charge": 1}


@SILENT
@pytest.mark.parametrize(
    "tags",
    [
        "{'team': 'vision'}",
        "'env': 'prod','Team': 'vision'",
        "[{'key': 'team', 'value': 'vision'}]",
        "[{'Key': 'env', 'Value': 'prod'}, {'Key': 'user:team', 'Value': 'vision'}]",
        "team=vision;env=prod",
        "key:team value:vision, key:env value:prod",
    ],
)
def test_tags_in_the_forms_of_every_cloud(write, tags) -> None:
    assert gpu_hours(bill_of(write, f"; 80; GPU-Hours; 25; i-1; ; {tags}")) == {"vision": 80}


def test_tags_that_cannot_be_read_are_said(write) -> None:
    with pytest.warns(UnlikelyJobsWarning, match="the tags of 1 charge cannot be read .*vision"):
        assert gpu_hours(bill_of(write, "; 80; GPU-Hours; 25; i-1; ; vision")) == {"Platform": 80}


def test_a_bill_that_tells_no_gpus_says_so(write) -> None:
    with pytest.warns(UnlikelyJobsWarning, match="each hour counts as one GPU-hour"):
        assert gpu_hours(bill_of(write, "; 80; Hours; 25; i-1; ; ")) == {"Platform": 80}


def test_a_purchase_of_the_same_amount_takes_no_usage_away(write) -> None:
    columns = "ChargePeriodStart,ChargePeriodEnd,ChargeCategory,ConsumedQuantity,ConsumedUnit,EffectiveCost,ResourceId"
    row = "2026-03-01T00:00:00Z,2026-03-02T00:00:00Z,{},24,Hours,10,i-1,V,{}"
    rows = [row.format("Purchase", 8), row.format("Usage", 8), row.format("Usage", 8)]
    with pytest.warns(UserWarning, match="1 charge that the bill has already"):
        jobs = read_jobs(write("\n".join([f"{columns},SubAccountName,x_GPUs", *rows])), "focus")
    assert jobs["gpus"].tolist() == [8]

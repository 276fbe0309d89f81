"""Reports month after month: which earlier one is compared with, what is kept, and how its forecast did."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import gpudemand.report
from gpudemand._files import _content_sha256, read_manifest, replace_folder, write_manifest
from gpudemand._validation import InputError
from gpudemand.report.build import build_report
from gpudemand.report.history import earlier_report, keep_history, past_forecast, read_earlier
from gpudemand.report.metrics import metrics_text
from gpudemand.report.tables import format_date
from gpudemand.study.study import Study
from tests.report.conftest import make_log

SCHEMA = json.loads(Path(gpudemand.report.__file__).with_name("report.schema.json").read_text(encoding="utf-8"))
OPTIONS = {"horizon": 25, "installed": {"A100": 64, "H100": 32}, "by": "group", "freq": "D", "prices": (1.0, 2.0)}
MONTHS = ("2026-03-20", "2026-04-10", "2026-04-20", "2026-05-08")
pytestmark = pytest.mark.usefixtures("quick_module", "undrawn", "brief_module")


@pytest.fixture(scope="module")
def log():
    return make_log(days=130, per_day=3)


@pytest.fixture(scope="module")
def monthly(log, tmp_path_factory):
    """Folders of reports at two ends of the log; the second was written over the first."""
    out = tmp_path_factory.mktemp("monthly")
    return {until: report_until(until, log, out) for until in MONTHS[:2]}


@pytest.fixture(scope="module")
def every_month(log, monthly):
    """These, and those of two more, each written over the one before."""
    return monthly | {until: report_until(until, log, monthly[MONTHS[0]].parent) for until in MONTHS[2:]}


def report_until(until, log, out):
    build_report(log, out / "report", until=until, **OPTIONS)
    return Path(shutil.copytree(out / "report", out / until))


def numbers(folder):
    return json.loads((folder / "report.json").read_text(encoding="utf-8"))


def strict(text):
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


@pytest.mark.slow
def test_the_numbers_are_as_the_schema_says(monthly):
    import jsonschema  # which compiles grammars for two seconds

    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    for folder in monthly.values():
        read_manifest(folder, "report.json", 2)
        content = strict((folder / "report.json").read_text(encoding="utf-8"))
        jsonschema.validate(content, SCHEMA, cls=jsonschema.Draft202012Validator)
        assert content["headline"] == strict((folder / "headline.json").read_text(encoding="utf-8"))
        assert content["headline"].keys() == set(SCHEMA["properties"]["headline"]["required"])
        assert all((folder / name).is_file() for name in content["tables"].values())


def test_the_schema_explains_every_part_and_refuses_others():
    import jsonschema

    assert all("description" in part or "const" in part for part in SCHEMA["properties"].values())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"made_by": "somebody"}, SCHEMA)


@pytest.mark.slow
def test_the_report_of_a_month_ago_is_taken_or_else_the_oldest(every_month):
    assert numbers(every_month["2026-03-20"])["since"] is None
    ends = {until: numbers(folder)["since"] for until, folder in every_month.items()}
    assert ends["2026-04-10"]["log_end"].startswith("2026-03-20")
    assert ends["2026-04-20"]["log_end"].startswith("2026-03-20")
    assert ends["2026-05-08"]["log_end"].startswith("2026-04-10")


@pytest.mark.slow
def test_the_last_four_weeks_are_kept_and_the_last_of_each_month(every_month):
    kept = {until: [path.name for path in sorted(folder.glob("history/*"))] for until, folder in every_month.items()}
    assert kept["2026-04-20"] == ["2026-03-20T000000Z", "2026-04-10T000000Z"]
    assert kept["2026-05-08"] == ["2026-03-20T000000Z", "2026-04-20T000000Z"]


def test_what_is_kept_can_be_read_and_is_listed(monthly):
    first, folder = (monthly[until] for until in MONTHS[:2])
    listed = numbers(folder)["files"]
    for path in (folder / "history").rglob("*.*"):
        assert listed[path.relative_to(folder).as_posix()] == hashlib.sha256(path.read_bytes()).hexdigest()
    (kept_one,) = (folder / "history").iterdir()
    assert read_earlier(kept_one).content == {name: value for name, value in numbers(first).items() if name != "sha256"}


def test_scores_are_those_of_the_earlier_forecast_on_what_came(monthly):
    then, now = monthly["2026-03-20"], monthly["2026-04-10"]
    model = numbers(then)["headline"]["model"]
    forecast = pd.read_parquet(then / "tables" / "forecast.parquet").set_index(["unique_id", "ds"])
    actual = pd.read_parquet(now / "tables" / "usage.parquet").set_index(["unique_id", "ds"])["y"]
    known = pd.read_parquet(then / "tables" / "usage.parquet")
    rows = forecast.join(actual, how="inner").dropna(subset="y")
    for series in ("mean", "peak"):
        own = rows.loc[series]
        assert len(own) == 21
        last = known[known["unique_id"] == series].sort_values("ds")["y"].iloc[-1]
        scored, naive = (row for row in numbers(now)["since"]["forecast"] if row["series"] == series)
        error = own[model] - own["y"]
        assert scored["wape_since"] == pytest.approx(error.abs().sum() / own["y"].sum())
        assert scored["bias"] == pytest.approx(error.sum() / own["y"].sum())
        inside = (own["y"] >= own[f"{model}-lo-80"]) & (own["y"] <= own[f"{model}-hi-80"])
        assert scored["coverage_80"] == pytest.approx(inside.mean())
        assert naive["wape_since"] == pytest.approx((own["y"] - last).abs().sum() / own["y"].sum())
        assert (naive["model"], naive["coverage_95"]) == ("last value", None)


def test_the_page_says_what_changed(monthly):
    html = (monthly["2026-04-10"] / "index.html").read_text(encoding="utf-8")
    then, now = (numbers(monthly[until])["headline"] for until in MONTHS[:2])
    assert "Since the report of 20 Mar 2026" in html
    arrivals = (format_date(pd.Timestamp(each["order_arrives"])) for each in (then, now))
    assert f"required {then['required']} GPUs from {next(arrivals)} on" in html
    assert f"this one requires {now['required']} from {next(arrivals)} on. For the latter time the earlier" in html
    assert "(last value " in html
    table = pd.read_parquet(monthly["2026-04-10"] / "tables" / "since_requirement.parquet")
    assert table["required"].tolist() == [then["required"], now["required"]]
    assert table["required_both"].iloc[1] == now["required"], "both are of the weeks that this report is for"
    plan = pd.read_parquet(monthly["2026-03-20"] / "tables" / "plan.parquet").query("basis == 'wait'").set_index("ds")
    assert table["required_both"].iloc[0] == plan.loc[: now["order_arrives"], "required"].iloc[-1]
    drivers = pd.read_parquet(monthly["2026-04-10"] / "tables" / "since_drivers.parquet").set_index("driver")
    parts = drivers.loc[[name for name in drivers.index if name.startswith("users")], "change_gpus"]
    assert parts.sum() == pytest.approx(drivers.loc["total", "change_gpus"])
    assert "Since the report" not in (monthly["2026-03-20"] / "index.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_dates_of_both_reports_are_in_the_zone_of_the_study(log, tmp_path):
    for until in MONTHS[:2]:
        build_report(log, tmp_path, until=until, **(OPTIONS | {"tz": "Asia/Tokyo"}))
    table = pd.read_parquet(tmp_path / "tables" / "since_requirement.parquet")
    assert [f"{time:%Y-%m-%d %H:%M %z}" for time in table["log_end"]] == [f"{day} 00:00 +0900" for day in MONTHS[:2]]
    arrival = format_date(pd.Timestamp(numbers(tmp_path)["headline"]["order_arrives"]))
    assert f"this one requires {numbers(tmp_path)['headline']['required']} from {arrival} on" in (
        tmp_path / "index.html"
    ).read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_report_may_be_named_and_settings_that_changed_are_said(log, monthly, tmp_path):
    options = OPTIONS | {"installed": 96}
    index = build_report(log, tmp_path / "r", until="2026-05-08", previous=monthly["2026-04-10"], **options)
    assert numbers(index.parent)["since"]["log_end"].startswith("2026-04-10")
    assert "not alike in their settings, which matters: installed." in index.read_text(encoding="utf-8")
    assert not (index.parent / "history").exists()


def test_a_report_of_another_log_is_refused_and_the_old_one_stays(log, monthly):
    before = numbers(monthly[MONTHS[1]])
    with pytest.raises(InputError, match=r"holds the report of another log, to 2026-04-10: .* choose another --out"):
        build_report(log.assign(gpus=5 * log["gpus"]), monthly[MONTHS[1]], until=MONTHS[2], **OPTIONS)
    assert numbers(monthly[MONTHS[1]]) == before


@pytest.mark.slow
def test_a_report_of_a_log_without_common_days_is_named(log, monthly, tmp_path):
    shutil.copytree(monthly[MONTHS[1]], tmp_path / "r")
    month = log[log["submit"] < log["submit"].min() + pd.Timedelta("30D")]
    later = month.assign(**{name: month[name] + pd.Timedelta("1096D") for name in ("submit", "start", "end")})
    with pytest.warns(UserWarning, match=r"of a log to 2026-04-10, has no days that can be compared .* another --out"):
        build_report(later, tmp_path / "r", **OPTIONS | {"horizon": 7})


def test_other_bins_cannot_be_scored(log, monthly):
    earlier = read_earlier(monthly["2026-04-10"])
    study = Study(log, until="2026-05-08", tz="Asia/Shanghai", **OPTIONS)
    with pytest.raises(InputError, match="days in the zone UTC, and this one Asia/Shanghai"):
        past_forecast(earlier, study)


def _damage(folder, kind):
    place = folder / "report.json"
    content = json.loads(place.read_text())
    if kind == "gone":
        place.unlink()
    elif kind == "cut":
        place.write_bytes(place.read_bytes()[:300])
    elif kind == "list":
        place.write_text("[1]")
    elif kind == "deep":
        place.write_text("[" * 100_000)
    elif kind == "bytes":
        place.write_bytes(b"\xff\x00")
    elif kind == "table":
        (folder / "tables" / "forecast.parquet").write_bytes(b"PAR1")
    elif kind == "no table":
        (folder / "tables" / "forecast.parquet").unlink()
    else:
        change = {
            "foreign": {"made_by": "somebody"},
            "old": {"format": 1},
            "new": {"format": 3},
            "edited": {"headline": {**content["headline"], "required": 1}},
            "empty": {"headline": None},
        }[kind]
        content = {**content, **change}
        if kind == "old":  # as an earlier version wrote it
            content["sha256"] = _content_sha256({name: value for name, value in content.items() if name != "sha256"})
        place.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("gone", "holds no report.json"),
        ("cut", "is damaged"),
        ("list", "is not of gpudemand"),
        ("deep", "is damaged"),
        ("bytes", "is damaged"),
        ("table", r"forecast\.parquet .* is damaged"),
        ("no table", r"forecast\.parquet is missing"),
        ("foreign", "is not of gpudemand"),
        ("old", "has format 1, and this version reads 2"),
        ("new", "has format 3, and this version reads 2"),
        ("edited", "is damaged or was edited"),
        ("empty", "is damaged or was edited"),
    ],
)
def test_a_report_that_cannot_be_read_is_one_sentence(monthly, tmp_path, kind, message):
    folder = Path(shutil.copytree(monthly["2026-04-10"], tmp_path / "earlier"))
    _damage(folder, kind)
    with pytest.raises(InputError, match=message) as caught:
        read_earlier(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_an_old_report_in_the_folder_stops_no_new_one(log, monthly, tmp_path):
    folder = Path(shutil.copytree(monthly["2026-03-20"], tmp_path / "report"))
    _damage(folder, "old")
    with pytest.warns(UserWarning, match="is kept as 'history/unread-"):
        index = build_report(log, folder, until="2026-05-08", **OPTIONS)
    assert numbers(folder)["since"] is None
    text = index.read_text(encoding="utf-8")
    assert "Comparison with an earlier report skipped: The report in" in text
    assert "has format 1, and this version reads 2" in text


def test_of_a_damaged_report_and_one_in_the_history_the_latter_is_taken(monthly, tmp_path):
    folder, end = (
        Path(shutil.copytree(monthly["2026-04-10"], tmp_path / "report")),
        pd.Timestamp("2026-05-08", tz="UTC"),
    )
    (folder / "tables" / "plan.parquet").write_bytes(b"")
    assert earlier_report(folder, None, end).log_end == pd.Timestamp("2026-03-20", tz="UTC")
    shutil.rmtree(folder / "history")
    with pytest.raises(InputError, match=r"plan\.parquet"):
        earlier_report(folder, None, end)
    assert earlier_report(tmp_path, None, end) is None


def test_a_report_that_is_not_earlier_is_refused_before_anything_is_computed(log, monthly, tmp_path):
    with pytest.raises(InputError, match="name an earlier report"):
        build_report(log, tmp_path / "r", until="2026-04-01", previous=monthly["2026-04-10"], **OPTIONS)
    assert not (tmp_path / "r").exists()


def test_metrics_have_the_numbers_of_the_report(monthly):
    content = numbers(monthly["2026-04-10"])
    samples = parse_metrics(metrics_text(content, 'a "quoted"\\name\n'))
    label = {"report": 'a "quoted"\\name\n'}
    assert samples["gpudemand_required_gpus", frozenset(label.items())] == content["headline"]["required"]
    end = pd.Timestamp(content["headline"]["log_end"]).timestamp()
    assert samples["gpudemand_log_end_timestamp_seconds", frozenset(label.items())] == end
    for name, row in content["gpu_types"].items():
        key = frozenset((label | {"gpu_type": name}).items())
        assert samples["gpudemand_gpu_type_required_gpus", key] == row["required"]
    own = frozenset((label | {"series": "mean", "method": "selected"}).items())
    assert samples["gpudemand_since_wape_ratio", own] == content["since"]["forecast"][0]["wape_since"]


def test_metrics_leave_out_what_is_not_known(monthly):
    content = numbers(monthly["2026-03-20"])
    content["headline"] |= {"first_crossing": None, "wape": None}
    content["order"] = {"due": False, "by": None, "gpu_type": None}
    names = {name for name, _ in parse_metrics(metrics_text(content, "r"))}
    assert "gpudemand_order_due" in names
    assert not names & {"gpudemand_order_by_timestamp_seconds", "gpudemand_since_wape_ratio"}
    assert "gpudemand_first_crossing_timestamp_seconds" not in names


def parse_metrics(text: str) -> dict[tuple[str, frozenset], float]:
    """Samples of Prometheus' text format 0.0.4; anything that its grammar does not allow fails."""
    assert text.endswith("\n")
    assert "\r" not in text
    samples: dict[tuple[str, frozenset], float] = {}
    types: dict[str, str] = {}
    helped: set[str] = set()
    family = ""
    for line in text.removesuffix("\n").split("\n"):
        if line.startswith("# HELP "):
            name, _, words = line.removeprefix("# HELP ").partition(" ")
            assert name not in helped
            assert words
            helped.add(name)
        elif line.startswith("# TYPE "):
            name, kind = line.removeprefix("# TYPE ").split(" ")
            assert name not in types
            assert kind in ("gauge", "counter", "untyped")
            types[name], family = kind, name
        else:
            name, labels, value = _sample(line)
            assert name == family  # all samples of a metric follow its TYPE
            assert name in helped
            assert (name, labels) not in samples
            samples[name, labels] = float(value)
    assert helped == set(types) == {name for name, _ in samples}
    return samples


def _sample(line: str) -> tuple[str, frozenset, str]:
    name, brace, rest = line.partition("{")
    assert brace
    assert name.isidentifier()
    assert name.isascii()
    assert name.rsplit("_", 1)[-1] in ("gpus", "seconds", "ratio", "due")
    labels: dict[str, str] = {}
    while not rest.startswith("}"):
        key, quote, rest = rest.partition('="')
        assert quote
        assert key.isidentifier()
        assert key not in labels
        value = ""
        while not rest.startswith('"'):
            assert rest
            step = 2 if rest[0] == "\\" else 1
            value += {"\\\\": "\\", '\\"': '"', "\\n": "\n"}[rest[:2]] if step == 2 else rest[0]
            rest = rest[step:]
        labels[key], rest = value, rest[1:]
        assert rest[0] in ",}"
        rest = rest.removeprefix(",")
    after, value = rest[:2], rest[2:]
    assert after == "} "
    assert np.isfinite(float(value))
    return name, frozenset(labels.items()), value


def made(folder, log_end):
    """A folder as a report leaves it, with just what is kept of it."""
    (folder / "tables").mkdir(parents=True)
    for name in ("tables/forecast.parquet", "tables/plan.parquet", "tables/usage.parquet", "index.html"):
        (folder / name).write_text(f"{name} of {log_end}")
    about = {"made_by": "gpudemand report", "format": 2, "headline": {"log_end": f"{log_end}T00:00:00+00:00"}}
    write_manifest(folder, "report.json", about)
    return folder


def replaced(out, log_end):
    """Write such a report over another; returns what was said."""
    with replace_folder(out, "report.json", {"made_by": "gpudemand report", "format": 2}) as folder:
        said = keep_history(out, folder, pd.Timestamp(log_end, tz="UTC"))
        made(folder / "new", log_end)
        for path in list((folder / "new").iterdir()):
            path.rename(folder / path.name)
        (folder / "new").rmdir()
    about = {"made_by": "gpudemand report", "format": 2, "headline": {"log_end": f"{log_end}T00:00:00+00:00"}}
    (out / "report.json").unlink()
    write_manifest(out, "report.json", about)
    return said


def kept(out):
    return sorted(path.name[:10] for path in (out / "history").iterdir())


def test_a_report_on_the_past_deletes_no_later_one(tmp_path):
    out = made(tmp_path / "out", "2026-04-01")
    for log_end in ("2026-05-01", "2026-06-01", "2026-07-01"):
        assert replaced(out, log_end) == []
    said = replaced(out, "2026-04-15")
    assert kept(out) == ["2026-04-01", "2026-05-01", "2026-06-01", "2026-07-01"]
    assert said == ["reports of logs that end later are kept in 'history': 2026-05-01, 2026-06-01, 2026-07-01."]
    replaced(out, "2026-07-15")
    assert kept(out) == ["2026-04-15", "2026-05-01", "2026-06-01", "2026-07-01"]


def test_of_those_kept_the_report_of_a_month_ago_is_taken_or_else_the_oldest(tmp_path):
    out, taken, kept_then = made(tmp_path / "out", MONTHS[0]), [], []
    for log_end in MONTHS[1:]:
        taken.append(earlier_report(out, None, pd.Timestamp(log_end, tz="UTC")).log_end)
        assert replaced(out, log_end) == []
        kept_then.append(kept(out))
    assert [f"{end:%Y-%m-%d}" for end in taken] == [MONTHS[0], MONTHS[0], MONTHS[1]]
    assert kept_then == [[MONTHS[0]], [MONTHS[0], MONTHS[1]], [MONTHS[0], MONTHS[2]]]


@pytest.mark.parametrize("damage", ["byte", "format", "json"])
def test_a_kept_report_that_cannot_be_read_stays(tmp_path, damage):
    out = made(tmp_path / "out", "2026-05-01")
    replaced(out, "2026-06-01")
    (old,) = (out / "history").iterdir()
    if damage == "byte":
        (old / "tables" / "plan.parquet").write_text("damaged")
    else:
        text = (old / "report.json").read_text()
        (old / "report.json").write_text("{" if damage == "json" else text.replace('"format": 2', '"format": 1'))
    before = {path.name: path.read_bytes() for path in old.rglob("*.*")}
    for log_end in ("2026-07-01", "2026-08-01"):
        (sentence,) = replaced(out, log_end)
        assert f"cannot be compared with is kept as 'history/{old.name}'" in sentence
        assert {path.name: path.read_bytes() for path in old.rglob("*.*")} == before


def test_edited_files_are_kept_and_said_once(tmp_path):
    out = made(tmp_path / "out", "2026-05-01")
    (out / "index.html").write_text("approved by the board")
    (sentence,) = replaced(out, "2026-06-01")
    assert "index.html of the report before had been edited; kept in 'edited/" in sentence
    for log_end in ("2026-07-01", "2026-08-01"):
        assert replaced(out, log_end) == []
        assert [path.read_text() for path in out.glob("edited/*/index.html")] == ["approved by the board"]


def test_a_file_that_was_deleted_stops_no_new_report(tmp_path):
    out = made(tmp_path / "out", "2026-05-01")
    (out / "index.html").unlink()
    replaced(out, "2026-06-01")
    assert (out / "index.html").is_file()
    assert not (out / "edited").exists()


def test_a_report_of_an_older_version_is_kept(tmp_path):
    out = made(tmp_path / "out", "2026-05-01")
    write_manifest(out, "report.json", {"made_by": "gpudemand report", "format": 1})
    (sentence,) = replaced(out, "2026-06-01")
    assert "has format 1" in sentence
    assert [path.read_text() for path in out.glob("history/*/index.html")] == ["index.html of 2026-05-01"]

"""Text of unknown origin in tables: no formulas for spreadsheets, no control characters."""

from __future__ import annotations

import csv
import io

import numpy as np
import pandas as pd
import pytest

from gpudemand._tables import printable, spreadsheet_safe, write_table

FORMULAS = [
    "=cmd|' /C calc'!A0",
    "@SUM(1)",
    "+1+1",
    "-2+3",
    "\t=1",
    "\r=1",
    "ada\r=1",
    "\n=1",
    "=",
    "\uff1d1",
    "ada;=1+1",
    "-5",
    'a";=1',
    "a,=1;@b",
]
BEGINNINGS = [*"=+@\t\r\n\uff1d\uff0b\uff0d\uff20"]
HARMLESS = ["ada", "a=b", "x@y.org", "vision-team", "1+1", "", " =1", "'=1", "张伟"]
CONTROLS = [chr(code) for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"]


def cells(text):
    """What a spreadsheet puts into cells, whichever of both separators it splits at."""
    for separator in ",;":
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator):
            yield from row


@pytest.mark.parametrize("dtype", ["object", "string", "category"])
@pytest.mark.parametrize("text", FORMULAS)
def test_no_cell_is_a_formula(text, dtype):
    table = pd.DataFrame({"user": pd.Series([text, "ada", None], dtype=dtype), "=head": [-1.5, np.nan, 2]})
    written = spreadsheet_safe(table).to_csv(index=False)
    for cell in cells(written):
        assert cell[:1] not in BEGINNINGS, written
        assert cell[:1] != "-" or cell.startswith("-1.5"), written
    read = pd.read_csv(io.StringIO(written, newline=""))
    np.testing.assert_array_equal(read["'=head"], [-1.5, np.nan, 2])


def test_numbers_times_and_harmless_text_are_untouched():
    times = pd.date_range("2026-01-01", periods=len(HARMLESS), tz="UTC")
    table = pd.DataFrame({"name": HARMLESS, "y": -1.0, "n": -3, "ds": times, "wait": pd.Timedelta("-1h"), "ok": True})
    pd.testing.assert_frame_equal(spreadsheet_safe(table), table)
    mixed = pd.DataFrame({"x": [-1, "-1", None, -0.5]}, dtype=object)
    assert spreadsheet_safe(mixed)["x"].tolist() == [-1, "'-1", None, -0.5]


def test_the_table_of_the_caller_is_not_changed():
    table = pd.DataFrame({"user": ["=1", "a\0"]})
    spreadsheet_safe(table)
    printable(table)
    assert table["user"].tolist() == ["=1", "a\0"]


def test_control_characters_become_printable_and_names_stay_distinct():
    names = [f"a{control}b" for control in CONTROLS]
    users, teams = pd.Series([*names, None], dtype="string"), pd.Series([*names, "x"], dtype="category")
    table = pd.DataFrame({"user": users, "team": teams})
    table.attrs = {"source": "log\x07", "rejected": {"bad\0": 1}}
    clean = printable(table)
    assert clean["user"].dtype == "string"
    assert isinstance(clean["team"].dtype, pd.CategoricalDtype)
    assert clean["user"].nunique() == len(names)
    assert clean["user"].isna().tolist() == [False] * len(names) + [True]
    assert not any(control in name for control in CONTROLS for name in clean["user"].dropna())
    assert clean["user"][0] == clean["team"][0] == r"a\x00b"
    assert clean.attrs == {"source": r"log\x07", "rejected": {r"bad\x00": 1}}


def test_parquet_has_the_names_as_they_are(tmp_path):
    table = pd.DataFrame({"unique_id": ["=1+1", "b"], "y": [1.0, -2.0]})
    for suffix in ("csv", "parquet"):
        write_table(table, tmp_path / f"usage.{suffix}")
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "usage.parquet").astype(table.dtypes), table)
    assert (tmp_path / "usage.csv").read_text() == "unique_id,y\n'=1+1,1.0\nb,-2.0\n"


def test_times_in_csv_are_as_pandas_writes_them(tmp_path):
    day = pd.Timestamp("2026-03-01")
    columns = {
        "zoned": pd.Series([day, day, pd.NaT]).dt.tz_localize("Europe/Berlin"),
        "midnights": pd.Series([day, pd.NaT, day + pd.Timedelta("1D")]),
        "seconds": pd.Series([day, day + pd.Timedelta("1s"), day]),
        "y": [1.5, None, 2.0],
    }
    table = pd.DataFrame(columns)
    write_table(table, tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == table.to_csv(index=False)


def test_a_notebook_shows_a_table_of_a_study_to_read():
    formatters = pytest.importorskip("IPython.core.formatters")
    from gpudemand._tables import shown_as_html

    dates = pd.to_datetime(["2026-08-01", "2026-09-01"], utc=True)
    table = pd.DataFrame({"in_service": dates, "risk": [0.123456, 1 / 3], "cost": [float("nan")] * 2})
    page = formatters.HTMLFormatter()(shown_as_html(table))
    assert "2026-08-01<" in page
    assert ">0.123<" in page
    assert "cost" not in page
    assert type(table) is pd.DataFrame
    assert "cost" in formatters.HTMLFormatter()(table.copy())

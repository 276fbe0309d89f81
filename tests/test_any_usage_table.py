"""Any table of usage, long or wide, gives what the plain pandas frame of it gives, and stays as it was."""

from __future__ import annotations

from io import StringIO

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import gpudemand as gd
from gpudemand._validation import InputError

from .test_any_table import LOG, arrow, assert_same, held

DAYS = pd.date_range("2026-03-02", periods=56, freq="D", tz="UTC")
USERS = ["ada", "bob", "eve", "joe"]


def wide_usage():
    rng = np.random.default_rng(0)
    weekly = 4 + 3 * (DAYS.day_of_week.to_numpy() < 5)
    return pd.DataFrame(
        rng.poisson(weekly, (4, 56)).astype(float), index=pd.Index(USERS, name="unique_id"), columns=DAYS
    )


WIDE = wide_usage()
USAGE = gd.to_long(WIDE)
PATHS = USAGE.assign(unique_id="x/" + USAGE["unique_id"])
OUTAGES = pd.DataFrame({"start": DAYS[[3]], "end": DAYS[[5]]})

#: Public functions and methods that take a usage table.
USAGE_CALLS = {
    "to_wide": lambda usage: gd.to_wide(usage),
    "aggregate_usage": lambda usage: gd.aggregate_usage(usage, "group/user")[0],
    "cross_validation": lambda usage: gd.cross_validation(gd.SeasonalNaive(), usage, h=2, n_windows=2, level=[80]),
    "find_outages": lambda usage: gd.find_outages(usage),
    "mask_outages": lambda usage: gd.mask_outages(usage, OUTAGES).sort_values(["unique_id", "ds"]),
    "Forecaster.fit": lambda usage: gd.LastValueProfile().fit(usage).predict(h=3, level=[80]),
    "Panel.from_long": lambda usage: gd.forecast.Panel.from_long(usage).values,
    "JobDemandModel.fit": lambda usage: gd.JobDemandModel(combine=False).fit(LOG, usage).predict(h=2),
}
USAGE_FORMS = {
    "pyarrow": arrow,
    "polars": lambda usage: pytest.importorskip("polars").from_arrow(arrow(usage)),
    "nullable": lambda usage: usage.convert_dtypes(),
    "backed by Arrow": lambda usage: usage.convert_dtypes(dtype_backend="pyarrow"),
    "categories": lambda usage: usage.astype({"unique_id": "category", "ds": "category"}),
    "Python datetimes": lambda usage: usage.assign(
        ds=pd.Series([time.to_pydatetime() for time in usage["ds"]], dtype=object)
    ),
    "objects": lambda usage: usage.astype(object),
    "shuffled": lambda usage: usage.sample(frac=1, random_state=0),
    "more columns": lambda usage: usage.assign(note="x"),
    "not contiguous": lambda usage: usage.loc[usage.index.repeat(2)].iloc[::2],
    "a column as index too": lambda usage: usage.set_index("unique_id", drop=False),
}


def usage_for(entry):
    if entry == "JobDemandModel.fit":
        return held()
    return PATHS if entry == "aggregate_usage" else USAGE


@pytest.fixture(scope="module")
def plain_result():
    """Result of an entry point for the plain pandas frame, computed once."""
    results = {}

    def result(entry):
        if entry not in results:
            calls, table = (USAGE_CALLS, usage_for(entry)) if entry in USAGE_CALLS else (WIDE_CALLS, WIDE)
            results[entry] = calls[entry](table)
        return results[entry]

    return result


#: All forms are tested where tables are converted, elsewhere those that nothing but the conversion makes usable.
CONVERT = ("Panel.from_long", "to_wide", "to_long", "rfm_table")
SOME_FORMS = ("pyarrow", "objects", "shuffled", "a column as index too", "from a file")


def cases(calls, forms):
    return [(entry, form) for entry in calls for form in forms if entry in CONVERT or form in SOME_FORMS]


@pytest.mark.parametrize(("entry", "form"), cases(USAGE_CALLS, USAGE_FORMS))
def test_any_usage_table_gives_what_the_plain_frame_gives(entry, form, plain_result):
    table = USAGE_FORMS[form](usage_for(entry))
    before = table.copy(deep=True) if isinstance(table, pd.DataFrame) else None
    found, expected = USAGE_CALLS[entry](table), plain_result(entry)
    if entry == "mask_outages":
        found = found[["unique_id", "ds", "y"]].reset_index(drop=True).astype(expected.dtypes)
    if entry == "to_wide":
        found, expected = found.reset_index(), expected.reset_index()
    assert_same(found, expected)
    if before is not None:
        pd.testing.assert_frame_equal(table, before)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"y": np.inf}, "1 values that are not finite numbers"),
        ({"y": True}, "1 values that are not finite numbers"),
        ({"y": "many"}, "1 values that are not finite numbers"),
        ({"ds": None}, "1 missing times"),
        ({"ds": "2026-03-02"}, "must hold datetimes"),
        ({"unique_id": None}, "1 missing names"),
        ({"ds": DAYS[1]}, "1 duplicate stamps"),
    ],
)
def test_a_bad_row_of_usage_is_refused(values, message):
    usage = USAGE.astype(object)
    for name, value in values.items():
        usage.loc[0, name] = value
    with pytest.raises(InputError, match=message):
        gd.Naive().fit(usage)


WIDE_CALLS = {
    "rfm_table": lambda wide: gd.rfm_table(wide),
    "segment_profiles": lambda wide: gd.segment_profiles(wide, [0, 1, 0, 1]),
    "TopologicalSegmenter.fit": lambda wide: gd.TopologicalSegmenter(2, random_state=0).fit(wide).probabilities_,
    "TopologicalSegmenter.predict": lambda wide: gd.TopologicalSegmenter(2, random_state=0).fit(WIDE).predict(wide),
    "UsageRhythm": lambda wide: gd.segments.UsageRhythm().fit_transform(wide),
    "CalendarProfile": lambda wide: gd.segments.CalendarProfile().fit_transform(wide),
    "persistence_statistics": lambda wide: gd.persistence_statistics(wide),
    "to_long": lambda wide: gd.to_long(wide),
}
WIDE_FORMS = {
    "pyarrow": lambda wide: pa.Table.from_pandas(wide.rename(columns=str).reset_index()),
    "polars": lambda wide: pytest.importorskip("polars").from_arrow(WIDE_FORMS["pyarrow"](wide)),
    "nullable": lambda wide: wide.astype("Float64"),
    "backed by Arrow": lambda wide: wide.astype("double[pyarrow]"),
    "objects": lambda wide: wide.astype(object),
    "Python datetimes": lambda wide: wide.set_axis(pd.Index(list(DAYS.to_pydatetime()), dtype=object), axis=1),
    "categories": lambda wide: wide.set_axis(pd.CategoricalIndex(DAYS), axis=1),
    "not contiguous": lambda wide: wide.loc[wide.index.repeat(2)].iloc[::2],
    "from a file": lambda wide: pd.read_csv(StringIO(wide.to_csv()), index_col=0),
    "users as a column": lambda wide: wide.reset_index(),
    "Fortran order": lambda wide: pd.DataFrame(np.asfortranarray(wide), index=wide.index, columns=wide.columns),
}


@pytest.mark.parametrize(("entry", "form"), cases(WIDE_CALLS, WIDE_FORMS))
def test_any_wide_table_gives_what_the_plain_frame_gives(entry, form, plain_result):
    table = WIDE_FORMS[form](WIDE)
    before = table.copy(deep=True) if isinstance(table, pd.DataFrame) else None
    assert_same(WIDE_CALLS[entry](table), plain_result(entry))
    if before is not None:
        pd.testing.assert_frame_equal(table, before)


NAIVE = WIDE.set_axis(DAYS.tz_localize(None), axis=1)


@pytest.mark.parametrize(
    "names",
    [
        NAIVE.columns.to_period("D"),
        pd.Index(list(NAIVE.columns.to_period("D")), dtype=object),
        pd.Index(NAIVE.columns.date),
        NAIVE.columns.strftime("%Y%m%d"),
        NAIVE.columns.strftime("%Y-%m-%dT%H:%M"),
    ],
    ids=["periods", "objects of periods", "dates", "text of digits", "text"],
)
def test_columns_that_are_times_of_another_kind_are_read(names):
    pd.testing.assert_frame_equal(gd.to_long(NAIVE.set_axis(names, axis=1)), gd.to_long(NAIVE))


@pytest.mark.parametrize(
    "names",
    [
        np.arange(1000, 1056),
        [str(year) for year in range(2000, 2056)],
        ["today", *map(str, range(55))],
        [f"{n:02}-{n:02}" for n in range(56)],
    ],
)
def test_columns_that_are_no_times_are_numbered(names):
    plain = WIDE.set_axis(pd.Index(names), axis=1)
    found = gd.TopologicalSegmenter(2, blocks=["persistence_curves"], random_state=0).fit_transform(plain)
    expected = gd.TopologicalSegmenter(2, blocks=["persistence_curves"], random_state=0).fit_transform(WIDE.to_numpy())
    np.testing.assert_array_equal(found, expected)
    for users in (["20260101", "20260102", "20260103", "20260104"], ["2024-01", "2024-02", "2024-03", "2024-04"]):
        named = WIDE.set_axis(pd.Index(users))
        assert gd.rfm_table(named.set_axis(DAYS, axis=1)).index.tolist() == named.index.tolist()
        assert gd.segments.usage_matrix.as_matrix(named.set_axis(plain.columns, axis=1)).ds is None


BERLIN = WIDE.set_axis(pd.date_range("2026-03-02", periods=56, freq="D", tz="Europe/Berlin"), axis=1)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (WIDE.T, "transpose it"),
        (pd.read_csv(StringIO(WIDE.T.to_csv()), index_col=0), "transpose it"),
        (NAIVE.set_axis(NAIVE.columns.to_period("D"), axis=1).T, "transpose it"),
        (WIDE.set_axis(pd.MultiIndex.from_product([["y"], DAYS]), axis=1), "columns of several levels"),
        (WIDE.assign(total=WIDE.sum(axis=1)), "not all times"),
        (pd.read_csv(StringIO(BERLIN.to_csv()), index_col=0), "several offsets from UTC"),
        (USAGE, "make it wide"),
    ],
)
@pytest.mark.parametrize("entry", ["to_long", "TopologicalSegmenter.fit", "rfm_table"])
def test_a_table_that_is_not_wide_is_refused(entry, table, message):
    with pytest.raises(InputError, match=message):
        WIDE_CALLS[entry](table)


def test_what_a_mask_hides_is_missing():
    hidden = np.ma.masked_greater(WIDE.to_numpy(), 8)
    filled = hidden.filled(np.nan)
    np.testing.assert_array_equal(gd.sublevel_persistence(hidden[0]), gd.sublevel_persistence(filled[0]))
    assert_same(gd.persistence_statistics(hidden), gd.persistence_statistics(filled))
    assert gd.metrics.pinball(hidden[0], hidden[1], 0.9) == gd.metrics.pinball(filled[0], filled[1], 0.9)

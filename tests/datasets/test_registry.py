import pandas as pd
import pyarrow.parquet as pq
import pytest

from gpudemand._files import file_sha256
from gpudemand._validation import InputError
from gpudemand.datasets import registry

KINDS = {"measured", "synthetic", "public table", "traced from code", "fitted"}
BUNDLED = registry.bundled_files()


def test_every_file_has_a_row_and_every_row_a_file():
    folder = registry.data_folder()
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert found - {"registry.json"} - {name for name in found if name.endswith("README.md")} == set(BUNDLED)


@pytest.mark.parametrize("row", BUNDLED.values(), ids=BUNDLED.keys())
def test_bundled_row_matches_its_file(row):
    path = registry.bundled_path(row.path)
    assert (path.stat().st_size, file_sha256(path)) == (row.bytes, row.sha256)
    assert row.kind in KINDS
    assert row.licence
    assert row.made_by


@pytest.mark.parametrize("row", [row for row in BUNDLED.values() if row.schema], ids=lambda row: row.path)
def test_schema_names_every_column(row):
    path = registry.bundled_path(row.path)
    readers = {".parquet": lambda p: pq.read_schema(p).names, ".csv": lambda p: list(pd.read_csv(p, nrows=0))}
    if path.suffix not in readers:
        pytest.skip(f"no columns in a {path.suffix} file")
    assert set(readers[path.suffix](path)) == set(row.schema)


def test_remote_rows_are_pinned():
    rows = registry.remote_files().values()
    assert len({row.file_name for row in rows}) == len(rows)
    for row in rows:
        owner_repository_commit = row.url.removeprefix("https://raw.githubusercontent.com/").split("/")[:3]
        assert len(owner_repository_commit[2]) == 40
        assert len(row.sha256) == 64
        assert row.licence
        assert row.citation


def test_errors_suggest_the_nearest_name():
    with pytest.raises(InputError, match=r"Did you mean 'sample/truth\.parquet'"):
        registry.bundled_path("sample/truth.parqet")
    with pytest.raises(InputError, match="Did you mean 'venus_jobs'"):
        registry.remote_file("venus_job")
    with pytest.raises(InputError, match="Choose one of: cdnow, "):
        registry.remote_file("???")


def test_data_is_found_in_a_wheel_before_a_checkout(tmp_path, monkeypatch):
    wheel, checkout = tmp_path / "_data", tmp_path / "data"
    monkeypatch.setattr(registry, "_PLACES", (wheel, checkout))
    with pytest.raises(InputError, match="lacks its data folder"):
        registry.data_folder()
    for place in (checkout, wheel):
        place.mkdir()
        (place / "registry.json").write_text("{}")
        assert registry.data_folder() == place

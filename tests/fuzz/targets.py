"""Everything that reads a file: a valid one, and what must hold of whatever is left of it after damage.

A reader refuses a file with an `InputError`, or what it returns accounts for all of it. Any other exception is a fault.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import requests

from gpudemand._files import file_sha256, manifest_text
from gpudemand._validation import InputError
from gpudemand.cost import CostModel
from gpudemand.cost.large_models import LargeModelPredictor
from gpudemand.cost.transformer_configs import read_configuration
from gpudemand.datasets import devices as saved_devices
from gpudemand.datasets.registry import bundled_path
from gpudemand.jobs import read_jobs
from gpudemand.pull.prometheus import PrometheusClient
from gpudemand.pull.slurm import pull_slurm
from gpudemand.report.history import KEPT, MADE_BY, read_earlier
from gpudemand.store import open_store
from gpudemand.study import plan_file
from gpudemand.study.plan_file import read_plan
from gpudemand.usage import usage_series
from tests.jobs.mutations import LOGS, USAGE, check_jobs_of, check_usage_of, gpu_seconds

T = TypeVar("T")


@dataclass(frozen=True)
class Target:
    """A reader.

    Attributes
    ----------
    valid : callable
        Returns the bytes of a valid file.
    check : callable
        Reads bytes, with a folder to work in; returns whether they were accepted. Any exception is a fault.
    """

    valid: Callable[[], bytes]
    check: Callable[[bytes, Path], bool]


@contextmanager
def work_folder(folder: Path) -> Any:
    """An empty folder that is gone afterwards, and no word about rows that were left out."""
    with tempfile.TemporaryDirectory(dir=folder) as own, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of rows left out, and of what does not add up
        yield Path(own)


def attempt(read: Callable[[], T], place: str = "") -> T | None:
    """What a reader returns, None if it refuses the file in a message that names the place."""
    try:
        return read()
    except InputError as error:
        if place not in str(error):
            raise AssertionError(f"the message does not name {place}: {error}") from error
        return None


def check_log(name: str, data: bytes, folder: Path) -> bool:
    """A job log, and now and then the usage that is computed from it."""
    jobs = check_jobs_of(name, data, folder)
    if jobs is not None and sum(data) % 8 == 0 and jobs["end"].notna().all():
        check_total(jobs)
    return jobs is not None


def check_total(jobs: pd.DataFrame) -> None:
    """The total usage is the sum over the rows."""
    hours = usage_series(jobs, by=None, freq="YS")["y"].sum()
    assert hours * 3600 == pytest.approx(gpu_seconds(jobs).sum(), rel=1e-9, abs=1e-3)


def valid_parquet() -> bytes:
    """Seven jobs in Parquet."""
    times = pd.date_range("2026-03-01", periods=7, freq="h", tz="UTC")
    jobs = pd.DataFrame({"job_id": [str(i) for i in range(7)], "user": "ada", "start": times, "end": times[-1]})
    out = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pandas(jobs.assign(gpus=2.0)), out, compression="none")
    return bytes(out.getvalue())


def check_parquet(data: bytes, folder: Path) -> bool:
    """Loaded and queried in place, a Parquet file of jobs gives the same."""
    with work_folder(folder) as own:
        path = own / "log.parquet"
        path.write_bytes(data)
        jobs = attempt(lambda: read_jobs(path), path.name)
        if jobs is not None and not jobs.attrs["rejected"] and jobs["end"].notna().all():
            check_total(jobs)
            in_place = attempt(lambda: usage_series(path, by=None, freq="YS")["y"].sum())
            assert in_place is None or in_place * 3600 == pytest.approx(gpu_seconds(jobs).sum(), rel=1e-9, abs=1e-3)
    return jobs is not None


def valid_plan() -> bytes:
    """The template of a plan with all its keys, but for the network of the user's own code, which would be run."""
    template = Path(plan_file.__file__).with_name("plan.toml").read_text()
    lines = template.partition("# Or trainings of a network that your own code builds")[0].splitlines()
    bare = [line.removeprefix("# ").partition("  #")[0] for line in lines if " = " in line or "[" in line]
    keys = (line for line in bare if not line.startswith(("#", " ")))  # others continue a comment
    return "\n".join(line for line in keys if line.startswith("[") or " = " in line.partition(",")[0]).encode()


def check_plan(data: bytes, folder: Path) -> bool:
    """A plan gives the options of a report."""
    with work_folder(folder) as own:
        (own / "plan.toml").write_bytes(data)
        plan = attempt(lambda: read_plan(own / "plan.toml"), "plan.toml")
    if plan is not None:
        gpus = plan.study_options()["installed"]
        by_type = gpus.values() if isinstance(gpus, dict) else [] if gpus is None else [gpus]
        for steps in map(np.atleast_1d, by_type):
            assert np.isfinite(steps).all()
            assert (steps >= 0).all()
    return plan is not None


def seal(folder: Path, name: str) -> None:
    """Give a manifest the checksums of what is there, as whoever damages with intent would."""
    with suppress(ValueError, AttributeError, RecursionError, UnicodeDecodeError):
        content = json.loads((folder / name).read_bytes())
        content.pop("sha256", None)
        if isinstance(content.get("files"), dict):
            content["files"] = {
                file: file_sha256(folder / file) if os.path.isfile(folder / file) else checksum
                for file, checksum in content["files"].items()
            }
        (folder / name).write_text(manifest_text(content))


@cache
def folder_with(kind: str) -> Path:
    """A valid store, saved model or report, made once."""
    place = Path(tempfile.mkdtemp(), kind)
    if kind == "model":
        model = CostModel.load()
        for data in (model.models_, model.fitted_on_):
            for key in [key for key in data if "gpu" in key]:
                del data[key]
        model.save(place)
    elif kind == "store":
        dump = place.parent / "dump.psv"
        dump.write_bytes(valid_dump())
        pull_slurm(place, files=[dump])
    else:
        for name in KEPT.values():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(valid_parquet())
        files = {name: file_sha256(place / name) for name in KEPT.values()}
        about = {"format": 2, "made_by": MADE_BY, "headline": {"log_end": "2026-03-01T00:00:00+01:00"}, "files": files}
        (place / "report.json").write_text(manifest_text(about))
    return place


def valid_part(kind: str, pattern: str) -> bytes:
    """A file of such a folder."""
    return next(folder_with(kind).glob(pattern)).read_bytes()


def check_part(kind: str, pattern: str, read: Callable[[Path], bool], data: bytes, folder: Path) -> bool:
    """A folder with one file damaged is refused, or gives something; also if its checksums were put right."""
    with work_folder(folder) as own:
        shutil.copytree(folder_with(kind), own / kind)
        next((own / kind).glob(pattern)).write_bytes(data)
        accepted = attempt(lambda: read(own / kind))
        seal(own / kind, f"{kind}.json")
        attempt(lambda: read(own / kind))
    return bool(accepted)


def load_model(folder: Path) -> bool:
    """Load a predictor."""
    model = CostModel.load(folder)
    assert isinstance(model.random_state, int | None)
    return {kind for kind, _ in model.models_} == set(model.fitted_on_)


def load_store(folder: Path) -> bool:
    """Read the jobs of a store, and open it for writing."""
    jobs = read_jobs(folder)
    with open_store(folder) as store:
        store.commit()
    return len(jobs) > 0


def load_report(folder: Path) -> bool:
    """Read what a later report compares itself with."""
    return read_earlier(folder).log_end.tzinfo is not None


def valid_dump() -> bytes:
    """What the command for a colleague prints."""
    lines = (Path(__file__).parents[1] / "pull/fixtures/sacct.psv").read_text().splitlines()
    return "\n".join([lines[0], *[line for line in lines[1:] if "." not in line.split("|")[0]][:7], ""]).encode()


def check_dump(data: bytes, folder: Path) -> bool:
    """Runs that were read are in the store or were refused, and the same file again changes nothing."""
    with work_folder(folder) as own:
        dump, store = own / "dump.psv", own / "store"
        dump.write_bytes(data)
        done = attempt(lambda: pull_slurm(store, files=[dump], tz="UTC"))
        if done is None or done.new == 0:
            assert done is None or attempt(lambda: read_jobs(store)) is None
            return done is not None
        stored = read_jobs(store)
        assert len(stored) + sum(stored.attrs["rejected"].values()) == done.read
        if sum(data) % 8 == 0:
            again = pull_slurm(store, files=[dump], tz="UTC")
            assert (again.new, again.refused) == (0, done.refused)
            pd.testing.assert_frame_equal(read_jobs(store), stored)
    return True


def valid_answer() -> bytes:
    """What Prometheus answers."""
    return USAGE["prometheus"]


def check_answer(data: bytes, folder: Path) -> bool:
    """An answer gives finite samples."""
    client = PrometheusClient("http://prometheus:9090", first_pause_s=0.0)
    said = requests.Response()
    said.status_code, said._content, said._content_consumed = 200, data, True
    client._session = SimpleNamespace(get=lambda *_, **__: said)
    times = pd.date_range("2024-05-01", periods=2, freq="min", tz="UTC")
    found = attempt(lambda: client.samples("up", times), "prometheus")
    assert found is None or (np.isfinite(found["y"]).all() and found["ds"].notna().all())
    return found is not None


def valid_device() -> bytes:
    """A saved device."""
    return json.dumps({"name": "Mine", "memory_gib": 64.0, "bandwidth_gb_s": 2000, "fp32_tflops": 30}).encode()


def check_device(data: bytes, folder: Path) -> bool:
    """A saved device has a positive memory."""
    with work_folder(folder) as own, pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUDEMAND_DEVICES", str(own))
        (own / "mine.json").write_bytes(data)
        found = attempt(lambda: saved_devices.device("mine"), "mine")
    assert found is None or found.memory_gib > 0
    return found is not None


def valid_configuration() -> bytes:
    """A model's ``config.json``."""
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100}
    latent = {"kv_lora_rank": 16, "q_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16}
    experts = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_shared_experts": 1}
    return json.dumps({"model_type": "deepseek_v3", **sizes, **latent, **experts, "n_positions": 64}).encode()


def check_configuration(data: bytes, folder: Path) -> bool:
    """A configuration has a number of parameters."""
    with work_folder(folder) as own:
        (own / "config.json").write_bytes(data)
        model = attempt(lambda: read_configuration(own / "config.json"))
    assert model is None or model.n_parameters > 0
    return model is not None


def valid_predictor() -> bytes:
    """The predictor of large models, with few scores."""
    content = json.loads(bundled_path("cost/large_models.json").read_bytes())
    for name in LargeModelPredictor().targets:
        for key in ("scores", "weights"):
            content[name][key] = content[name][key][:3]
    return json.dumps(content).encode()


def check_predictor(data: bytes, folder: Path) -> bool:
    """A predictor has finite numbers."""
    with work_folder(folder) as own:
        (own / "large.json").write_bytes(data)
        found = attempt(lambda: LargeModelPredictor.load(own / "large.json"), "large.json")
    for target in found.targets.values() if found else ():
        assert np.isfinite(list(target.fitted.coefficients.values())).all()
    return found is not None


TARGETS: dict[str, Target] = {
    **{name: Target(lambda data=data: data, partial(check_log, name)) for name, (_, data) in LOGS.items()},
    **{name: Target(lambda data=data: data, partial(check_usage_of, name)) for name, data in USAGE.items()},
    "parquet": Target(valid_parquet, check_parquet),
    "plan": Target(valid_plan, check_plan),
    "model-manifest": Target(
        partial(valid_part, "model", "model.json"), partial(check_part, "model", "model.json", load_model)
    ),
    "model-arrays": Target(
        partial(valid_part, "model", "*memory*.npz"), partial(check_part, "model", "*memory*.npz", load_model)
    ),
    "store-manifest": Target(
        partial(valid_part, "store", "store.json"), partial(check_part, "store", "store.json", load_store)
    ),
    "store-table": Target(
        partial(valid_part, "store", "jobs/*.parquet"), partial(check_part, "store", "jobs/*.parquet", load_store)
    ),
    "earlier-report": Target(
        partial(valid_part, "report", "report.json"), partial(check_part, "report", "report.json", load_report)
    ),
    "slurm-dump": Target(valid_dump, check_dump),
    "prometheus-answer": Target(valid_answer, check_answer),
    "device": Target(valid_device, check_device),
    "model-configuration": Target(valid_configuration, check_configuration),
    "large-model-predictor": Target(valid_predictor, check_predictor),
}

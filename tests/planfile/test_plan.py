"""Plan files: what they mean, and one sentence for each mistake."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpudemand.study.plan_file
from gpudemand import Study, TrainingJob
from gpudemand._validation import InputError
from gpudemand.cost import training_totals
from gpudemand.planning.capacity import broadcast_by_time
from gpudemand.study import selection as candidates
from gpudemand.study.plan_file import read_plan, write_plan
from gpudemand.study.pools import total_installed
from tests.report.conftest import make_log
from tests.tiers import slow_beside

TEMPLATE = Path(gpudemand.study.plan_file.__file__).with_name("plan.toml").read_text(encoding="utf-8")
INVENTORY = """
tz = "Europe/Berlin"
installed = { A100 = 64, H100 = 32 }
[[deliveries]]
date = 2026-07-01
gpu_type = "H100"
gpus = 16
[[retirements]]
date = 2026-10-01
gpu_type = "A100"
gpus = 60
[[deliveries]]
date = 2026-10-01
gpu_type = "B200"
gpus = 8
"""
TAGGER = """
import torch

def tagger():
    return torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten())
"""
EVENT = "tz = 'UTC'\n[[events]]\nname = 'closure'\nstart = 2026-07-20\nend = 2026-08-03\neffect = -0.6\n"
SUMMER = [pd.Timestamp(day, tz="UTC") for day in ("2026-07-20", "2026-08-03")]


def plan_of(tmp_path, text, name="plan.toml"):
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    return read_plan(file)


def refused(tmp_path, text) -> str:
    """The sentence with which a plan is refused."""
    with pytest.raises(InputError) as caught:
        plan_of(tmp_path, text)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'plan.toml'}")
    assert "\n" not in message
    assert message.endswith(".")
    return message.removeprefix(f"{tmp_path / 'plan.toml'}")


@pytest.mark.parametrize("traced", slow_beside([False], [False, True]))
def test_the_template_is_valid_as_it_is_and_with_every_line_in_force(tmp_path, traced):
    """The network that it traces, in a process that loads PyTorch, is left out of the quick tests."""
    plan = read_plan(write_plan(tmp_path / "plan.toml", log='a"b\\c.psv', format="sacct", tz="Asia/Shanghai"))
    assert (plan.log, plan.format, plan.tz) == (tmp_path / 'a"b\\c.psv', "sacct", "Asia/Shanghai")
    assert plan.study_options() == read_plan(tmp_path / "plan.toml").study_options()
    lines = re.sub(r"^# (?=\w+ = |\[)", "", TEMPLATE, flags=re.MULTILINE)
    assert lines.count("\n# ") < TEMPLATE.count("\n# ")
    if traced:
        pytest.importorskip("torch")
        (tmp_path / "team").mkdir()
        (tmp_path / "team" / "networks.py").write_text(TAGGER)
    else:
        lines, n = re.subn(r'\[\[programmes\]\]\nname = "tagging"\n.*?(?=^# Purchases)', "", lines, flags=re.S | re.M)
        assert n == 1
    everything = plan_of(tmp_path, lines)
    assert everything.clusters == ("alps", "bern")
    assert [change.gpus for change in everything.changes] == [16, -32]
    runs, training, *tagging = everything.programmes
    assert [work.job.graph.n_parameters for work in tagging] == [3 * 9 * 8 + 8] * traced
    assert [work.steps for work in tagging] == [5e7 / (4 * 128)] * traced
    assert runs.gpu_hours == 60 * 12 * 8
    assert training.steps * training.job.run.tokens == pytest.approx(2e10)
    assert repr(training.job) == (
        "TrainingJob(llama-3-8b on 8192 tokens: any number at once, adamw, bf16, LoRA(rank=16, targets='all-linear', "
        "bits=16), checkpointing selective, fused_linear loss, fused kernels, data=8, tensor=8, zero1, 64 x H100 SXM5)"
    )
    assert everything.prices == (1.2, 3.0)
    assert everything.events.values.tolist() == [["summer closure", *SUMMER, -0.6]]
    unset = [name for name, value in vars(everything).items() if name != "events" and value in (None, (), [])]
    assert unset == []


def test_every_key_of_the_template_has_a_comment_on_its_line_or_above():
    above = ""
    for line in TEMPLATE.splitlines():
        if re.match(r"(# )?\w+ = ", line):
            assert "# " in line[2:] or above.startswith("#"), line
        above = line


def test_a_plan_is_never_written_over(tmp_path):
    write_plan(tmp_path / "plan.toml")
    with pytest.raises(InputError, match="there already"):
        write_plan(tmp_path / "plan.toml")


def test_nothing_is_needed_and_paths_are_relative_to_the_file(tmp_path):
    plan = plan_of(tmp_path, "")
    assert (plan.log, plan.gpus, plan.out) == (None, None, tmp_path / "gpudemand-report")
    plan = plan_of(tmp_path, 'log = "jobs/a.psv"\nout = "/tmp/out"\nprevious = "may"')
    assert (plan.log, plan.out, plan.previous) == (tmp_path / "jobs/a.psv", Path("/tmp/out"), tmp_path / "may")


def test_a_byte_order_mark_and_windows_line_ends_are_read(tmp_path):
    (tmp_path / "plan.toml").write_bytes('\ufefffreq = "h"\r\nwait = "2h"\r\n'.encode())
    assert read_plan(tmp_path / "plan.toml").study_options()["wait"] == "2h"


def test_deliveries_and_retirements_make_a_series_in_time(tmp_path):
    by_type = plan_of(tmp_path, INVENTORY).gpus
    assert [gpus.tolist() for gpus in by_type.values()] == [[64, 4], [32, 48], [0, 8]]
    gpus = plan_of(tmp_path, INVENTORY.replace("{ A100 = 64, H100 = 32 }", "96")).gpus
    assert total_installed(by_type).drop_duplicates().tolist() == gpus.tolist()
    days = ["2020-01-01", "2026-06-30 23:59", "2026-07-01", "2026-09-30 23:59", "2026-10-01", "2030-01-01"]
    stamps = pd.Series(pd.DatetimeIndex(days).tz_localize("Europe/Berlin"))
    assert broadcast_by_time(gpus, stamps).tolist() == [96, 96, 112, 112, 60, 60]


def test_without_changes_gpus_stay_by_type(tmp_path):
    assert plan_of(tmp_path, "[installed]\nA100 = 64\nH100 = 0").gpus == {"A100": 64, "H100": 0}
    assert plan_of(tmp_path, "installed = 12").gpus == 12


def test_lead_times_and_prices_are_of_all_or_by_type(tmp_path):
    text = 'lead_time = { A100 = "60D", H100 = "20W" }\nprices.A100 = { reserved = 1, on_demand = 2 }\n'
    plan = plan_of(tmp_path, f"{text}[prices.H100]\nreserved = 3\non_demand = 4.5")
    assert plan.study_options()["lead_time"] == {"A100": "60D", "H100": "20W"}
    assert plan.study_options()["prices"] == {"A100": (1, 2), "H100": (3, 4.5)}
    plan = plan_of(tmp_path, 'lead_time = "7D"\nprices = { reserved = 1, on_demand = 2 }')
    assert (plan.lead_time, plan.prices) == ("7D", (1, 2))


PRETRAINING = """
[[programmes]]
name = "pretraining"
runs = 2
start = 2026-05-03T00:00:00Z
end = 2026-05-19T00:00:00Z
tokens = 5e9
user = "ada"
[programmes.job]
model = "llama-3-8b"
seq_len = 4096
device = "H100"
n_gpus = 64
"""


def test_a_training_is_priced_as_training_totals_does(tmp_path):
    programme = plan_of(tmp_path, PRETRAINING).programmes[0]
    job = TrainingJob.from_config("llama-3-8b", 4096, device="H100", n_gpus=64)
    totals = training_totals(job, 5e9)
    assert programme.gpu_hours == pytest.approx(2 * totals["gpu_hours"])
    assert programme.run.high * 64 == pytest.approx(totals["gpu_hours-hi-90"])
    options = "n_gpus = 64\nglobal_batch = 512\nparallel.tensor = 8\ncheckpointing = false"
    steps = plan_of(tmp_path, PRETRAINING.replace("tokens = 5e9", "steps = 100").replace("n_gpus = 64", options))
    assert steps.programmes[0].steps * steps.programmes[0].job.run.tokens == 100 * 512 * 4096
    assert steps.programmes[0].job.parallel.tensor == 8


def test_a_configuration_is_read_relative_to_the_plan(tmp_path):
    sizes = {"hidden": 512, "layers": 4, "heads": 8, "vocab": 1000, "ffn": 1408}
    (tmp_path / "small.json").write_text(json.dumps(sizes))
    programme = plan_of(tmp_path, PRETRAINING.replace("llama-3-8b", "small.json")).programmes[0]
    assert programme.job.model.n_parameters == 13873664


@pytest.mark.slow
def test_a_training_of_a_plan_is_a_part_of_the_forecast(tmp_path, monkeypatch):
    monkeypatch.setattr(candidates, "_MIN_COMBINATION_BINS", 10_000)
    programmes = plan_of(tmp_path, PRETRAINING).programmes
    log = make_log(days=120)
    alone, more = (Study(log, horizon=21, lead_time="1D", programmes=work) for work in ((), programmes))
    added = more.forecast["Study"].sum() - alone.forecast["Study"].sum()
    parts = more.forecast[more.forecast["unique_id"] == "total/pretraining"]
    assert 24 * parts["Study"].sum() == pytest.approx(programmes[0].gpu_hours)
    assert added > 2 * parts["Study"].sum() > 0
    assert more.headline["required"] > alone.headline["required"]


def test_times_with_an_offset_need_no_zone(tmp_path):
    text = "installed = 8\n[[deliveries]]\ndate = 2026-07-01T02:00:00+02:00\ngpus = 8\n"
    assert plan_of(tmp_path, text).gpus.index[-1] == pd.Timestamp("2026-07-01", tz="UTC")


def test_a_day_that_begins_within_the_gap_of_summer_time_is_a_time(tmp_path):
    plan = plan_of(tmp_path, 'tz = "America/Santiago"\nuntil = 2026-09-06')
    assert plan.until == pd.Timestamp("2026-09-06 01:00", tz="America/Santiago")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("lead_tim = '60D'", ["no key 'lead_tim'. Did you mean 'lead_time'?"]),
        ("[[programmes]]\nnam = 'x'", ["no key 'nam' in programmes[1]. Did you mean 'name'?"]),
        ("installed = 8\n[[deliveries]]\nout = 'x'", ["no key 'out' in deliveries[1]", "above all [[...]]"]),
        ("log = 7", ["log must be text in quotes; got 7"]),
        ("log = ''", ["log must be text in quotes"]),
        ("out = '~nobody-at-all/x'", ["out must be a path, and nobody here has that home; got '~nobody-at-all/x'"]),
        ("horizon = 1.5", ["horizon must be a whole number of at least 1; got 1.5"]),
        ("horizon = true", ["horizon must be a whole number"]),
        ("horizon = 0", ["horizon must be a number of at least 1; got 0"]),
        (f"installed = 1{'0' * 400}", ["installed must be a number of at least 0"]),
        ("installed = -1", ["installed must be a number of at least 0; got -1"]),
        ("installed = nan", ["installed must be a number"]),
        ("installed = '96'", ["installed must be a number", "got '96'"]),
        ("installed = {}", ["installed must be one value, or a table of such by GPU type"]),
        ("[installed]\nA100 = -4", ["installed.A100 must be a number of at least 0; got -4"]),
        ("[installed]\nA100 = 0", ["installed, summed over types,"]),
        ("service_level = 2", ["service_level must be a number above 0.5 and at most 0.999; got 2"]),
        ("wait_share = 90", ["wait_share must be"]),
        ("lead_time = 90", ["lead_time must be text in quotes"]),
        ("lead_time = 'soon'", ["lead_time must be a length of time such as '90D'", "'soon'"]),
        ("wait = '-1h'", ["wait must be a length of time"]),
        ("freq = 'fortnight'", ["freq='fortnight'"]),
        ("by = 'usr'", ["by='usr'", "Did you mean 'user'"]),
        ("format = 'sact'", ["format='sact'", "Did you mean 'sacct'"]),
        ("tz = 'Europe/Berln'", ["tz='Europe/Berln'", "Did you mean 'Europe/Berlin'"]),
        ("tz = 3", ["tz must be text in quotes"]),
        ("clusters = 'alps'", ["clusters must be a list of texts"]),
        ("clusters = [1]", ["clusters[1] must be text in quotes"]),
        ("prices = [1, 2]", ["prices must be a table"]),
        ("prices = { reserved = 1 }", ["prices has no on_demand"]),
        ("lead_time = {}", ["lead_time must be one value, or a table of such by GPU type"]),
        ("[lead_time]\nA100 = 60", ["lead_time.A100 must be text in quotes"]),
        ("[lead_time]\nA100 = 'soon'", ["lead_time.A100 must be a length of time such as '90D'"]),
        ("[prices.A100]\nreserved = 1", ["prices.A100 has no on_demand"]),
        ("[prices.A100]\nreservd = 1", ["no key 'reservd' in prices.A100. Did you mean 'reserved'?"]),
        ("[prices]\nA100 = { reserved = 1, on_demand = 2 }\nreserved = 1", ["no key 'A100' in prices"]),
        ("prices.A100 = { reserved = 4, on_demand = 1 }", ["prices['A100']", "the reserved price comes first"]),
        ("prices = { reserved = 4, on_demand = 1 }", ["the reserved price comes first"]),
        ("until = 2026-06-30", ["until must be a time with a zone", "tz = "]),
        ("until = 2026-06-30T12:00:00", ["until must be a time with a zone"]),
        ("until = '2026-06-30'", ["until must be a date without quotes"]),
        ("until = 12:00:00", ["until must be a date"]),
        ("until = 0001-01-01T00:00:00Z", ["until must be a date from 1985 to 2199"]),
        ("[[deliveries]]\ndate = 2026-07-01\ngpus = 8\n", ["deliveries[1].date must be a time with a zone"]),
        ("tz='UTC'\n[[deliveries]]\ndate = 2026-07-01\ngpus = 8\n", ["no installed"]),
        ("tz='UTC'\ninstalled = 8\n[[deliveries]]\ndate = 2026-07-01\ngpus = -8\n", ["deliveries[1].gpus", "got -8"]),
        ("tz='UTC'\ninstalled = 8\n[[deliveries]]\ndate = 2026-07-01\n", ["deliveries[1] has no gpus"]),
        ("installed = 8\ndeliveries = 3", ["deliveries must be tables, each under a line [[deliveries]]"]),
        (INVENTORY.replace('gpu_type = "H100"\n', ""), ["each delivery and retirement needs gpu_type"]),
        (INVENTORY.replace('gpu_type = "H100"', 'gpu_type = "h100"'), ["'h100', which installed does not", "'H100'"]),
        (INVENTORY.replace('"B200"', '"B20O"'), ["'B20O', which installed does not", '{ "B20O" = 0 }']),
        (INVENTORY.replace("gpus = 60", "gpus = 65"), ["2026-10-01 take 1 more GPUs of type 'A100' than"]),
        (INVENTORY.replace("gpus = 60", "gpus = 60\nnote = 1"), ["no key 'note' in retirements[1]"]),
        ("[[programmes]]\nname = 'x'", ["programmes[1] has no runs; add it"]),
        (
            PRETRAINING.replace("tokens = 5e9", ""),
            ["programmes[1]: a programme with a job has one of tokens"],
        ),
        (PRETRAINING.replace("tokens = 5e9", "tokens = 5e9\nhours = 3"), ["neither hours nor gpus"]),
        (PRETRAINING.replace("tokens = 5e9", "tokens = 5e9\nsteps = 3"), ["has one of tokens, samples, steps"]),
        (PRETRAINING.replace("tokens = 5e9", "steps = 3"), ["steps need the samples of one step: add global_batch"]),
        (PRETRAINING.partition("[programmes.job]")[0], ["programmes[1] has no hours; add it"]),
        (PRETRAINING.replace("tokens = 5e9", "tokens = 0"), ["programmes[1]: steps of 'pretraining' must be"]),
        (PRETRAINING.replace("seq_len", "seqlen"), ["no key 'seqlen' in programmes[1].job. Did you mean 'seq_len'?"]),
        (PRETRAINING.replace("seq_len = 4096", ""), ["programmes[1].job has no seq_len; add it"]),
        (
            PRETRAINING.replace("llama-3-8b", "no_such.team:net"),
            ["'no_such.team' cannot be imported"],
        ),
        (PRETRAINING.replace("n_gpus = 64", ""), ["programmes[1].job has no n_gpus; add it"]),
        (PRETRAINING.replace("llama-3-8b", "lama-3-8b"), ["programmes[1].job: ", "Did you mean 'llama-3-8b'?"]),
        (PRETRAINING.replace("llama-3-8b", "no.json"), ["programmes[1].job: ", "no.json"]),
        (PRETRAINING.replace("H100", "H10O"), ["programmes[1].job: ", "Did you mean"]),
        (
            PRETRAINING + "parallel = { tensr = 8 }",
            ["no key 'tensr' in programmes[1].job.parallel. Did you mean 'tensor'?"],
        ),
        (PRETRAINING + "parallel = { sharding = 'zero9' }", ["programmes[1].job.parallel: sharding='zero9"]),
        (PRETRAINING + "parallel = { sequence = 1 }", ["job.parallel.sequence must be true or false; got 1"]),
        (PRETRAINING + "lora = { bits = 3 }", ["programmes[1].job.lora: bits of frozen weights are 16, 8 or 4"]),
        (PRETRAINING + "checkpointing = 'some'", ["programmes[1].job: checkpointing='some'"]),
        (
            "tz='UTC'\n[[programmes]]\nname='x'\nruns=1\nstart=2026-08-01\nend=2026-07-01\nhours=1\ngpus=1",
            ["programmes[1]", "before it starts"],
        ),
        ("holidays = 'Germany'", ["no public holidays are known of country 'Germany'", "Write 'DE' or 'DE-BY'"]),
        ("holidays = 'DE-XX'", ["region 'XX' of DE; it has BB, BE"]),
        ("[[events]]\nname = 'x'", ["events[1] has no start; add it"]),
        (
            EVENT.replace("end = 2026-08-03", "end = 2026-07-20"),
            ["event 'closure' needs a start and, after it, an end"],
        ),
        (EVENT.replace("-0.6", "-1.5"), ["events[1].effect must be a number of at least -1; got -1.5"]),
        (EVENT.replace("effect", "efect"), ["no key 'efect' in events[1]. Did you mean 'effect'?"]),
        (EVENT + EVENT.replace("-0.6", "-0.5").partition("\n")[2], ["event 'closure' has several effects"]),
        ("freq = 'D\nby = 'user'", ["is no valid TOML", "line 1"]),
        ("by = 'user'\nby = 'group'\n", ["is no valid TOML", "line 2"]),
        ("x = " + "[" * 5000, ["is no valid TOML"]),
    ],
)
def test_a_mistake_is_one_sentence_with_file_and_key(tmp_path, text, parts):
    message = refused(tmp_path, text)
    for part in parts:
        assert part in message


def test_all_mistakes_are_said_at_once(tmp_path):
    message = refused(tmp_path, "log = 7\nwait = 'soon'\n[[deliveries]]\ngpus = -8\n")
    for part in (
        "log must be text in quotes; got 7.",
        "wait must be a length of time",
        "deliveries[1].gpus",
        "no date",
    ):
        assert part in message


def test_a_missing_file_and_bytes_that_are_no_text_are_refused(tmp_path):
    with pytest.raises(InputError, match="gpudemand init"):
        read_plan(tmp_path / "plan.toml")
    for content in (b"log = '\xff'", "log = 'a'".encode("utf-16")):
        (tmp_path / "plan.toml").write_bytes(content)
        with pytest.raises(InputError, match=r"no valid TOML: it is not text in UTF-8; save it as such\.$"):
            read_plan(tmp_path / "plan.toml")


@settings(deadline=None)
@given(text=st.text(alphabet="abdeilnost=[]{}\"'-.0123 \n", max_size=60))
def test_no_text_at_all_is_a_crash(tmp_path_factory, text):
    with suppress(InputError):  # whatever else it raises is a crash
        plan_of(tmp_path_factory.getbasetemp(), text)


def test_plans_compare_by_file_and_content(tmp_path):
    file = tmp_path / "plan.toml"
    file.write_text(EVENT)
    plan = read_plan(file)
    assert plan == read_plan(file)
    file.write_text(EVENT.replace("-0.6", "-0.5"))
    assert plan != read_plan(file)
    file.write_text("lead_time = '30D'")
    assert plan != read_plan(file)


def test_a_plan_comes_from_a_file():
    with pytest.raises(ValueError, match=r"read_plan\(path\)"):
        gpudemand.study.plan_file.ReportPlan(lead_time="30D")

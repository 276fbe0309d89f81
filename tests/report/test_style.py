"""Rules of CSS of one's own on the page."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

import gpudemand as gd
from gpudemand._validation import InputError
from gpudemand.cli.app import app
from gpudemand.report.page import read_style
from gpudemand.study.plan_file import read_plan

RULE = ":root { --blue: #005a3c; }"
pytestmark = pytest.mark.usefixtures("quick_module", "undrawn", "brief_module")


@pytest.mark.slow
def test_rules_of_the_plan_come_after_those_of_the_page_and_the_command_names_others(tmp_path):
    (tmp_path / "company.css").write_text(RULE)
    (tmp_path / "plan.toml").write_text('log = "jobs.parquet"\nstyle = "company.css"\nhorizon = 7\nlead_time = "7D"\n')
    gd.write_jobs(gd.make_cluster(6, 60, random_state=0)[0], tmp_path / "jobs.parquet")
    assert read_plan(tmp_path / "plan.toml").style == tmp_path / "company.css"
    arguments = ["report", "--plan", str(tmp_path / "plan.toml"), "--out", str(tmp_path / "out"), "--quiet"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    page = (tmp_path / "out" / "index.html").read_text()
    head = page[: page.index("</style>")]
    assert head.rstrip().endswith(RULE)
    assert head.index("--blue: #1f5fa8") < head.index(RULE)
    result = CliRunner().invoke(app, [*arguments, "--style", str(tmp_path / "none.css")])
    assert result.exit_code == 2
    assert "none.css' cannot be read as text; name a file of CSS" in result.output
    assert (tmp_path / "out" / "index.html").read_text() == page


@pytest.mark.parametrize(
    "rules",
    [
        "</style><script>alert(1)</script>",
        "@import 'other.css';",
        "h1 { background: url(https://example.org/logo.png); }",
        "h1 { background: URL( 'logo.png' ); }",
    ],
)
def test_what_would_leave_the_page_is_refused(rules, tmp_path):
    (tmp_path / "company.css").write_text(rules)
    with pytest.raises(InputError, match="but the page is one file"):
        read_style(tmp_path / "company.css")


def test_images_within_the_file_and_nothing_are_taken(tmp_path):
    rules = "h1 { background: url('data:image/svg+xml;utf8,x'); }"
    (tmp_path / "company.css").write_text(rules)
    assert read_style(tmp_path / "company.css") == rules
    assert read_style(None) == ""


def test_what_is_no_text_is_refused(tmp_path):
    for name, content in (("binary.css", b"\xff\xfe\x00"), ("large.css", b"a" * 1_000_001)):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match="name a"):
            read_style(tmp_path / name)
    with pytest.raises(InputError, match="cannot be read"):
        read_style(tmp_path)
    with pytest.raises(InputError, match="more than a megabyte"):
        read_style("/dev/zero")

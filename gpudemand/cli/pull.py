"""The commands that pull usage from live systems into a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpudemand.cli.options import Quiet, one_line, steps

if TYPE_CHECKING:
    from gpudemand.pull.slurm import SlurmPull
    from gpudemand.store import Store


pull = typer.Typer(help="Pull usage from Slurm or Prometheus into a store.", no_args_is_help=True)

Into = Annotated[Path, typer.Option(help="Folder of the store, made if absent.", show_default=False)]
Since = Annotated[str | None, typer.Option(help="Begin of the first pull (UTC), such as 2026-01-01.")]


@pull.command()
@one_line
def slurm(
    into: Into,
    since: Since = None,
    clusters: Annotated[str | None, typer.Option(help="Names of clusters, or all; by default this one.")] = None,
    command_only: Annotated[
        bool, typer.Option("--command-only", help="Print the commands for a colleague with the rights.")
    ] = False,
    file: Annotated[list[Path] | None, typer.Option("--from", help="What such a command printed; repeatable.")] = None,
    tz: Annotated[str | None, typer.Option(help="Zone of times in these files that have none.")] = None,
    shards_per_gpu: Annotated[
        float | None, typer.Option(help="gres/shard that make one GPU; by default what the nodes say.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Pull all jobs from Slurm's accounting; every night, from cron.

    Example: gpudemand pull slurm --into /srv/gpu-jobs --since 2026-01-01
    """
    from gpudemand.pull.slurm import pull_slurm, slurm_commands

    if command_only:
        commands = slurm_commands(into, since=since, clusters=clusters)
        files = " ".join(f"--from {command.rpartition(' ')[2]}" for command in commands)
        typer.echo("\n".join([*commands, f"gpudemand pull slurm --into {into} {files}"]))
        return
    of_files: dict[str, Any] = {"files": file or (), "tz": tz, "shards_per_gpu": shards_per_gpu}
    with steps(quiet=quiet) as begin:
        done = pull_slurm(into, since=since, clusters=clusters, **of_files, progress=begin)
    typer.echo(_described(into, done))


def _described(into: Path, done: SlurmPull) -> str:
    """Lines that say what a store of jobs holds, and what a pull read and refused."""
    from gpudemand.store import read_store

    store = read_store(into)
    found = store.query(
        "jobs",
        """SELECT count(*) AS runs, count(DISTINCT (cluster, job_id)) AS jobs, min(submit) AS a, max(submit) AS b,
        count(*) FILTER (status IN ('pending', 'running')) AS open, string_agg(DISTINCT cluster, ', ') AS clusters,
        count(DISTINCT "user") AS users FROM stored""",
    )
    refused = ", ".join(f"{count:,} {reason}" for reason, count in done.refused.most_common()) or "none"
    new = f"{done.new:,} of them new; {done.gone:,} open ones are no longer in Slurm"
    lines = [f"read {done.read:,} runs, {new}", f"refused: {refused}", *_hidden(done)]
    if found is not None:
        row = found.to_pylist()[0]
        period = f"submitted {row['a']:%Y-%m-%d} to {row['b']:%Y-%m-%d} (UTC)"
        people = f"of {row['users']:,} users on {row['clusters'] or 'an unnamed cluster'}"
        jobs = f"{row['runs']:,} runs of {row['jobs']:,} jobs"
        lines += [_nodes(store), f"{into}: {jobs} {people}, {period}, {row['open']:,} open"]
    return "\n".join(lines)


def _hidden(done: SlurmPull) -> list[str]:
    """Lines that say of which users this pull was shown nothing."""
    from gpudemand._validation import shorten

    told = "Slurm showed no runs of {}, which the store holds; they stay, and are asked for again by the next pull"
    return [
        f"{cluster or 'this cluster'}: " + told.format(f"{len(users):,} users ({shorten(', '.join(users), 80)})")
        for cluster, users in done.hidden.items()
    ]


def _nodes(store: Store) -> str:
    """Line that says which GPUs the nodes had last, and how many are down."""
    from gpudemand.jobs.slurm import gpus_down, installed_by_cluster

    found = store.read("nodes")
    if found is None:
        return "GPUs of the nodes: not known, sacctmgr does not tell them; state `installed` in reports"
    events = found.to_pandas()
    last = [(name, [*steps.values()][-1]) for of in installed_by_cluster(events).values() for name, steps in of.items()]
    counts = ", ".join(f"{count:g} {name}" for name, count in last if count)
    return f"GPUs of the nodes: {counts or 'none'}; {gpus_down(events):g} of them on nodes that are down"


@pull.command()
@one_line
def prometheus(
    into: Into,
    url: Annotated[str, typer.Option(help="Address before /api/v1.", show_default=False)],
    since: Since = None,
    until: Annotated[str | None, typer.Option(help="End (UTC); by default now.")] = None,
    step: Annotated[str, typer.Option(help="Distance of samples.")] = "5min",
    points: Annotated[int, typer.Option(help="Times of one request, at most 11,000.")] = 2000,
    user: Annotated[str | None, typer.Option(help="User for basic authentication.")] = None,
    password: Annotated[
        str | None, typer.Option(envvar="PROMETHEUS_PASSWORD", help="Better in the environment than typed.")
    ] = None,
    token: Annotated[
        str | None, typer.Option(envvar="PROMETHEUS_TOKEN", help="Bearer token; better in the environment.")
    ] = None,
    ca: Annotated[Path | None, typer.Option(help="PEM file of the server's certificate authority.")] = None,
    certificate: Annotated[Path | None, typer.Option(help="PEM file of the own certificate.")] = None,
    key: Annotated[Path | None, typer.Option(help="PEM file of its key.")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for one answer; twice as long in all.")] = 120.0,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace what the store has at the same times, also of another address.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Pull held, pending, used and installed GPUs of a Kubernetes cluster from Prometheus.

    Example: PROMETHEUS_TOKEN=... gpudemand pull prometheus --into /srv/gpu-usage --url https://prometheus:9090
    """
    from gpudemand.pull.prometheus import PrometheusClient, pull_prometheus

    client = PrometheusClient(
        url, user=user, password=password, token=token, ca=ca, certificate=certificate, key=key, timeout_s=timeout
    )
    with steps(quiet=quiet) as begin:
        options: dict[str, Any] = {"since": since, "until": until, "step": step, "points": points, "replace": replace}
        done = pull_prometheus(into, client, **options, progress=begin)
    gaps = "; ".join(f"{first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M}" for first, last in done.gaps)
    typer.echo(f"{done.samples:,} samples from {done.begin:%Y-%m-%d %H:%M} to {done.end:%Y-%m-%d %H:%M} (UTC)")
    typer.echo(f"nothing was scraped: {gaps or 'never'}")
    if done.kept:
        typer.echo(f"kept: what the store had at {done.kept:,} times that the server no longer has")
    if done.refused:
        typer.echo("refused: " + ", ".join(f"{count:,} {reason}" for reason, count in done.refused.most_common()))

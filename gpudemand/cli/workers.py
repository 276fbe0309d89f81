"""Dask's workers for the commands whose parts can run side by side."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

Dask = Annotated[
    str | None,
    typer.Option(metavar="WHERE", help="Run on Dask's workers: local, or the address of a scheduler, tcp://host:8786."),
]


@contextmanager
def workers(where: str | None) -> Iterator[None]:
    """Run what is parallel on Dask's workers: of this machine (``local``), of a scheduler (its address), or on none.

    Raises
    ------
    InputError
        If Dask is not installed, or no scheduler answers.
    """
    if where is None:
        yield
        return
    from gpudemand._validation import InputError

    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise InputError('--dask needs Dask; install it: pip install "gpudemand[scale]".') from error
    if where == "local":
        with LocalCluster(threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster):
            yield
        return
    try:
        client = Client(where, timeout=5)
    except (OSError, ValueError) as error:
        raise InputError(
            f"no Dask scheduler answers at {where!r}; start one with `dask scheduler`, or use --dask local."
        ) from error
    with client:
        yield

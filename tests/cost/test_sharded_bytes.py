"""Bytes of parameters, gradients and optimizer states on each of two GPUs, against two processes that hold them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gpudemand.cost.job import TrainingJob
from gpudemand.cost.large_memory import memory_terms
from gpudemand.cost.parallel import Parallel
from gpudemand.cost.transformer_configs import read_configuration

pytest.importorskip("torch")
SHARDINGS = ("fsdp", "zero1")
WORKER = Path(__file__).with_name("sharded_worker.py")
SIZES = {"hidden": 64, "layers": 4, "heads": 1, "ffn": 176, "vocab": 512}


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.fixture(scope="module")
def measured():
    """Bytes that the first of two processes measured, by sharding."""
    about = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", str(WORKER), *SHARDINGS]
    processes = [
        subprocess.Popen(command, env={**os.environ, **about, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    return json.loads(outputs[0].splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("sharding", SHARDINGS)
def test_bytes_on_each_gpu_are_those_that_two_processes_hold(measured, sharding):
    layout = Parallel(sharding=sharding)
    options = {"device": "H100", "n_gpus": 2, "parallel": layout, "micro_batch": 1, "checkpointing": False}
    terms = memory_terms(TrainingJob(read_configuration(SIZES), (8,), optimizer="adamw", **options).run)
    for name, held in measured[sharding].items():
        assert held == pytest.approx(terms[name], rel=0.03), name

"""Memory of a training run by purpose, as a table that prints, and the largest micro-batch that fits."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from gpudemand._typing import STRING
from gpudemand.cost.large_models.candidates import candidates
from gpudemand.cost.large_models.memory import memory_parts, memory_terms
from gpudemand.cost.large_models.predictor import LargeModelPredictor
from gpudemand.cost.large_models.run import TrainingRun
from gpudemand.cost.memory.breakdown import MemoryBreakdown
from gpudemand.cost.predict.largest_batch import largest_that
from gpudemand.units import GIB


def run_breakdown(run: TrainingRun, predictor: LargeModelPredictor) -> MemoryBreakdown:
    """Memory of the GPU that holds most; of a run with unknown options, of the likeliest way to fill them in.

    Parameters
    ----------
    run : TrainingRun
    predictor : LargeModelPredictor

    Returns
    -------
    MemoryBreakdown
    """
    likeliest = max(candidates(run), key=lambda way: way[0])[1]
    coefficients = predictor.targets["memory_gib"].fitted.coefficients
    found = memory_parts(pd.DataFrame([memory_terms(likeliest)]), coefficients)
    parts = {name: float(values[0]) / GIB for name, values in found.items()}
    total, context = sum(parts.values()), parts["context"]
    table = pd.DataFrame({"part": pd.Series(list(parts), dtype=STRING), "gib": list(parts.values())})
    return MemoryBreakdown(table, total - context - parts["fragmentation"], total - context, total, str(likeliest))


def largest_micro_batch(run: TrainingRun, predictor: LargeModelPredictor, probability: float = 0.95) -> int:
    """Samples at once of each replica that fit with a probability; 0 if not even one does.

    Parameters
    ----------
    run : TrainingRun
        Whatever its own micro-batch; what else is unknown is as in the likeliest way to fill it in.
    predictor : LargeModelPredictor
    probability : float, default=0.95
    """
    likeliest = max(candidates(run), key=lambda way: way[0])[1]

    def fits(size: int) -> bool:
        """Whether a micro-batch fits with the probability."""
        return bool(predictor.fits([replace(likeliest, micro_batch=size, global_batch=None)])[0] >= probability)

    return largest_that(fits, likeliest.micro_batch or 1)

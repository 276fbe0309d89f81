"""How many GPUs a cluster will need, for whom, when, and at what risk, starting from the jobs themselves.

>>> import gpudemand as gd
>>> jobs = gd.load_jobs_sample()  # your own log: gd.read_jobs("log.psv", format="sacct", tz="Europe/Berlin")
>>> held = gd.usage_series(jobs, by=None, freq="D", value="gpus", partial=False)
>>> forecast = gd.LastValueProfile().fit(held).predict(h=28, level=[80, 95])
>>> plan = gd.plan_capacity(forecast, installed=512, lead_time="60D")

Names are loaded when first used, so the import itself is instant.
"""

import ast
from pathlib import Path

import lazy_loader

__getattr__, _, _ = lazy_loader.attach_stub(__name__, __file__)

#: Names that most people need, by question; the stub names more, which resolve here too.
__all__ = next(
    ast.literal_eval(node.value)
    for node in ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    if isinstance(node, ast.Assign)
)


def __dir__() -> list[str]:
    return [*__all__]


__version__ = "0.1.0"

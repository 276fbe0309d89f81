"""`ScriptEffect`: how much longer a step takes in a training script than alone, as a random effect of its source."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import t as student

from gpudemand._atomic import replace_file
from gpudemand._typing import FloatArray
from gpudemand._validation import InputError, check_number
from gpudemand.cost.regression.targets import check_costs


class ScriptEffect(NamedTuple):
    """Ratio of the step time of training scripts to that of the bare step: a random effect of the project they are of.

    A script loads and augments data, computes losses, metrics and assignments on the host, logs and evaluates. The log
    ratio of a project never seen is around `mean` with Student's t and a scale of `spread`; what the prediction of the
    bare step may err by comes on top.

    Attributes
    ----------
    mean : float
        Mean log ratio over projects.
    spread : float
        Standard deviation of the log ratio of a project never seen around it.
    projects : int
        Published projects that tell them.

    References
    ----------
    Meeker, Hahn, Escobar, "Statistical Intervals", Wiley 2017, 4.7: prediction interval of one more normal observation.

    Examples
    --------
    Three projects take 1.1, 1.2 and 1.4 times as long as predicted:

    >>> ratios, names = np.array([1.1, 1.1, 1.2, 1.2, 1.4, 1.4]), list("aabbcc")
    >>> effect = ScriptEffect.fit(ratios, np.ones(6), names)
    >>> round(effect.ratio, 2), round(effect.spread, 2)
    (1.23, 0.14)
    """

    mean: float
    spread: float
    projects: int

    @classmethod
    def fit(cls, measured: Any, predicted: Any, projects: Any) -> ScriptEffect:
        """Fit to published steps; each project counts as one, by the median of its rows.

        Parameters
        ----------
        measured, predicted : array-like of shape (n_rows,)
            Seconds a step of scripts, and of the bare steps.
        projects : array-like of shape (n_rows,)
            Whose script each row is of.

        Raises
        ------
        InputError
            For fewer than three projects, or values that are no times.
        """
        measured, predicted = (check_costs(values, len(projects), "are no times") for values in (measured, predicted))
        logs = pd.Series(np.log(measured / predicted)).groupby(np.asarray(projects, dtype=object)).median()
        if len(logs) < 3:
            raise InputError(f"a script effect needs rows of three projects or more; got {len(logs)}.")
        spread = float(logs.std(ddof=1) * np.sqrt(1.0 + 1.0 / len(logs)))
        return cls(float(logs.mean()), spread, len(logs))

    @property
    def ratio(self) -> float:
        """Geometric mean of the ratio of a script's step to the bare step."""
        return float(np.exp(self.mean))

    def interval(self, level: float) -> tuple[float, float]:
        """Ratio of a project never seen: the ends of its interval at a level in percent."""
        reach = float(student.ppf(0.5 + level / 200, self.projects - 1) * self.spread)
        return float(np.exp(self.mean - reach)), float(np.exp(self.mean + reach))

    def apply(self, seconds: FloatArray, levels: Sequence[float]) -> FloatArray:
        """Seconds of steps in scripts from those of bare steps, with intervals; logs of the errors add in quadrature.

        Parameters
        ----------
        seconds : ndarray of shape (n, 1 + 2 n_levels)
            The time, then the lower and the upper end at each level in percent.

        Returns
        -------
        ndarray of the same shape
        """
        script = np.array([self.ratio, *(end for level in levels for end in self.interval(level))])
        time, bare = seconds[:, :1], np.log(seconds / seconds[:, :1])
        reach = np.hypot(bare, np.log(script / self.ratio))
        sign = np.array([0.0, *([-1.0, 1.0] * len(levels))])
        return np.asarray(time * self.ratio * np.exp(sign * reach))

    def save(self, path: Path) -> None:
        """Write as JSON."""
        with replace_file(path) as new:
            new.write_text(json.dumps(self._asdict(), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path | None = None) -> ScriptEffect:
        """Read what `save` wrote; by default the bundled effect.

        Raises
        ------
        InputError
            If the file holds no such effect.
        """
        from gpudemand.datasets.registry import bundled_path

        source = path or bundled_path("cost/script_effect.json")
        try:
            content = dict(json.loads(source.read_bytes()))
            numbers = {name: check_number(name, content[name]) for name in cls._fields}
            return cls(numbers["mean"], numbers["spread"], int(numbers["projects"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{source.name} holds no effect of scripts that is known here: {error}.") from error

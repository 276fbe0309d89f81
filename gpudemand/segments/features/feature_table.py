"""Blocks of features, and their concatenation to one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from gpudemand import _parallel
from gpudemand._validation import InputError, check_choice
from gpudemand.segments.base.transformer import SeriesTransformer
from gpudemand.segments.base.usage_matrix import Matrix, sampling_step
from gpudemand.segments.features.multiscale_persistence import MultiscalePersistence
from gpudemand.segments.features.rfm import RFM, CalendarProfile, UserPresence
from gpudemand.segments.features.rhythm import UsageRhythm
from gpudemand.segments.features.spectrum import LogSpectrum
from gpudemand.segments.features.weekly_persistence import WeeklyPersistence
from gpudemand.segments.topology.rips import RipsStatistics
from gpudemand.segments.topology.sublevel import PersistenceStatistics

#: Users of one parallel task.
_ROWS_PER_TASK = 1024
_DAY = pd.Timedelta("1D")
#: Length and stride of the sliding windows of "rips", in bins.
RIPS_WINDOW, RIPS_STRIDE = 14, 2

BLOCKS: Mapping[str, Callable[[], SeriesTransformer]] = {
    "persistence": PersistenceStatistics,
    "rips": lambda: RipsStatistics(RIPS_WINDOW, stride=RIPS_STRIDE),
    "spectrum": LogSpectrum,
    "calendar": CalendarProfile,
    "rhythm": UsageRhythm,
    "weekly_persistence": WeeklyPersistence,
    "multiscale_persistence": MultiscalePersistence,
    "presence": UserPresence,
    "rfm": RFM,
}
#: Default blocks with times and without, and the blocks that need no times.
TIMED = ("rhythm", "weekly_persistence")
UNTIMED = ("persistence", "spectrum")
TIMELESS = (*UNTIMED, "rips", "presence", "rfm")
TOPOLOGY = ("persistence", "rips", "weekly_persistence", "multiscale_persistence")


def choose_blocks(names: Sequence[str] | None, matrix: Matrix) -> tuple[str, ...]:
    """Return the validated `names` of blocks, or the default ones for `matrix`.

    Raises
    ------
    InputError
        If a name is unknown, none is given, or a block needs times that `matrix` lacks.
    """
    timed = has_days(matrix)
    if names is None:
        return TIMED if timed else UNTIMED
    if isinstance(names, str) or not len(names):
        raise InputError(f"blocks must be a list of one or more of: {', '.join(sorted(BLOCKS))}; got {names!r}.")
    for name in names:
        check_choice("blocks", name, BLOCKS)
        if not timed and name not in TIMELESS:
            raise InputError(
                f"the block {name!r} needs columns that are times, a day apart or less; make them with to_wide."
            )
    return tuple(dict.fromkeys(names))


def has_days(matrix: Matrix) -> bool:
    """Return whether `matrix` has times at most a day apart."""
    step = sampling_step(matrix.ds)
    return step is not None and step <= _DAY


class FeatureTable:
    """Features of several blocks side by side, columns named ``block__feature``.

    Parameters
    ----------
    names : sequence of str
        Names in `BLOCKS`.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)

    def fit(self, matrix: Matrix) -> FeatureTable:
        """Fit each block."""
        frame = as_frame(matrix)
        self.transformers_ = {name: BLOCKS[name]().fit(frame) for name in self.names}
        return self

    def transform(self, matrix: Matrix) -> pd.DataFrame:
        """Return the table, shape (n_users, n_features), indexed by user."""
        frame = as_frame(matrix)
        tasks = [frame.iloc[first : first + _ROWS_PER_TASK] for first in range(0, len(frame), _ROWS_PER_TASK)]
        return pd.concat(_parallel.run(self._rows, tasks))

    def _rows(self, frame: pd.DataFrame) -> pd.DataFrame:
        return pd.concat([self._part(name, block, frame) for name, block in self.transformers_.items()], axis=1)

    def _part(self, name: str, block: SeriesTransformer, frame: pd.DataFrame) -> pd.DataFrame:
        columns = [f"{name}__{feature}" for feature in block.get_feature_names_out()]
        return pd.DataFrame(np.asarray(block.transform(frame)), index=frame.index, columns=columns)


def as_frame(matrix: Matrix) -> pd.DataFrame:
    """Return a matrix as a DataFrame with its users and times."""
    return pd.DataFrame(matrix.values, index=matrix.ids, columns=matrix.ds, copy=False)


def columns_of(table: pd.DataFrame, block: str) -> pd.DataFrame:
    """Return the features of one block."""
    return table.loc[:, table.columns.str.startswith(f"{block}__")]

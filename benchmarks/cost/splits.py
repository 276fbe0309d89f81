"""Splits that hold out a family, a device, or what lies beyond the training data.

All are scikit-learn splitters, to be passed as ``cv``. A random split leaves other batch sizes of a network in the
training set, which underestimates the error on new networks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import BaseCrossValidator, GroupKFold, LeaveOneGroupOut

from gpudemand._array import BoolArray, FloatArray
from gpudemand._validation import InputError, check_choice, check_columns, check_number
from gpudemand.cost.networks import family_of
from gpudemand.datasets.devices import Device, device


class _KeySplit(BaseCrossValidator):
    """Hold out whole groups; subclasses define the group of a name by `_key`."""

    _noun: str

    def __init__(self, n_splits: int | None = None) -> None:
        self.n_splits = n_splits

    def _key(self, name: Any) -> str:
        raise NotImplementedError

    def _keys(self, groups: Any) -> FloatArray:
        if groups is None:
            raise InputError(f"{type(self).__name__} needs groups, the {self._noun} of each row.")
        names = pd.Series(np.asarray(groups, dtype=object))
        keys = names.map({name: self._key(name) for name in names.unique()}).to_numpy(dtype=object)
        if len(set(keys)) < 2:
            raise InputError(f"{type(self).__name__} needs two groups, to hold one out; all rows are {keys[0]!r}.")
        return np.asarray(keys)

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of splits.

        `groups`: shape (n_rows,); names; not needed where `n_splits` is set.
        """
        if self.n_splits is not None:
            return int(check_number("n_splits", self.n_splits, 2, integer=True))
        return len(set(self._keys(groups)))

    def _iter_test_indices(self, X: Any = None, y: Any = None, groups: Any = None) -> Iterator[Any]:
        keys, n_splits = self._keys(groups), self.get_n_splits(X, y, groups)
        if n_splits > len(set(keys)):
            raise InputError(f"n_splits={n_splits} is more than the {len(set(keys))} groups that there are.")
        folds = LeaveOneGroupOut() if self.n_splits is None else GroupKFold(n_splits)
        return (test for _, test in folds.split(keys, None, keys))


class FamilySplit(_KeySplit):
    """Hold out families of networks; the ``groups`` of `split` are names of networks.

    Parameters
    ----------
    n_splits : int or None, default=5
        Folds of about equal size; None is one fold a family.

    See Also
    --------
    gpudemand.cost.family_of : Definition of a family.

    Examples
    --------
    >>> names = ["resnet18", "resnet50", "vgg16", "seresnet50"]
    >>> for train, test in FamilySplit(2).split(names, groups=names):
    ...     print([names[row] for row in test])
    ['resnet18', 'resnet50', 'seresnet50']
    ['vgg16']
    """

    _noun = "network"

    def __init__(self, n_splits: int | None = 5) -> None:
        super().__init__(n_splits)

    def _key(self, name: Any) -> str:
        return family_of(name)


class DeviceSplit(_KeySplit):
    """Hold out devices by their die; the ``groups`` of `split` are names of devices.

    Parameters
    ----------
    n_splits : int or None, default=None
        Folds; None is one a die.

    Examples
    --------
    >>> names = ["RTX 3090", "V100", "RTX A6000"]
    >>> [[names[row] for row in test] for _, test in DeviceSplit().split(names, groups=names)]
    [['RTX 3090', 'RTX A6000'], ['V100']]
    """

    _noun = "device"

    def _key(self, name: str | Device) -> str:
        found = device(name)
        return found.die or found.name


class _OneSplit(BaseCrossValidator):
    """A single split by the values of columns of a DataFrame."""

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return 1."""
        return 1

    def _test(self, X: pd.DataFrame) -> BoolArray:
        raise NotImplementedError

    def _iter_test_masks(self, X: Any = None, y: Any = None, groups: Any = None) -> Iterator[BoolArray]:
        test = self._test(X)
        if test.all() or not test.any():
            side = "test" if test.all() else "training"
            raise InputError(f"{self!r} puts all {test.size} rows into the {side} set.")
        yield test


class ExtrapolationSplit(_OneSplit):
    """Test on the rows beyond a bound in any of some columns, train on the others.

    Parameters
    ----------
    bounds : dict of str to float
        Column -> largest (or smallest) value in the training set.
    side : {"above", "below"}, default="above"
        Side of the bound that is tested.

    References
    ----------
    Lattuada et al., Cluster Computing, 2022.

    Examples
    --------
    >>> rows = pd.DataFrame({"batch_size": [8, 16, 32, 16], "n_gpus": [1, 1, 1, 4]})
    >>> [(train, test)] = ExtrapolationSplit({"batch_size": 16, "n_gpus": 2}).split(rows)
    >>> train, test
    (array([0, 1]), array([2, 3]))
    """

    def __init__(self, bounds: Mapping[str, float], side: str = "above") -> None:
        self.bounds = bounds
        self.side = side

    def _test(self, X: pd.DataFrame) -> BoolArray:
        if not isinstance(self.bounds, Mapping) or not self.bounds:
            raise InputError(f"bounds must name columns, such as {{'batch_size': 64}}; got {self.bounds!r}.")
        sign = 1 if check_choice("side", self.side, ("above", "below")) == "above" else -1
        beyond = [sign * (_numbers(X, name) - check_number(name, at)) > 0 for name, at in self.bounds.items()]
        return np.logical_or.reduce(beyond)


class InterpolationSplit(_OneSplit):
    """Test on some values of a column that lie between values trained on.

    Parameters
    ----------
    column : str
        Name of the column.
    step : int, default=2
        Every `step`-th distinct value is tested, the smallest and the largest never.
    values : sequence of float, optional
        The values to test, instead of `step`.

    Examples
    --------
    >>> rows = pd.DataFrame({"batch_size": [8, 16, 32, 64, 128, 16]})
    >>> [(train, test)] = InterpolationSplit("batch_size").split(rows)
    >>> rows["batch_size"][test].tolist()
    [16, 64, 16]
    """

    def __init__(self, column: str, step: int = 2, values: Sequence[float] | None = None) -> None:
        self.column = column
        self.step = step
        self.values = values

    def _test(self, X: pd.DataFrame) -> BoolArray:
        numbers = _numbers(X, self.column)
        if self.values is None:
            step = int(check_number("step", self.step, 2, integer=True))
            return np.isin(numbers, np.unique(numbers)[step - 1 : -1 : step])
        low, high = numbers.min(), numbers.max()
        outside = [value for value in self.values if not low < value < high]
        if outside:
            raise InputError(f"values must lie inside {low:g} and {high:g} of {self.column}; got {outside[0]!r}.")
        return np.isin(numbers, np.asarray(self.values, dtype=float))


def _numbers(X: Any, name: str) -> FloatArray:
    column = check_columns(X, (name,), "X")[name]
    if not pd.api.types.is_numeric_dtype(column):
        raise InputError(f"column {name!r} must hold numbers to have a bound; got {column.dtype}.")
    return column.to_numpy(dtype=float)

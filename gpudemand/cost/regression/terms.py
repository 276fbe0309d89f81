"""Terms of a formula: columns, their inverses and logarithms, categories, and products of these."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations_with_replacement
from math import comb
from typing import NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand._validation import InputError

#: Ways of reading one column that may stand in one product: powers, and x log x.
_TOGETHER = ({"x"}, {"1/x"}, {"x", "log(x)"})


class Factor(NamedTuple):
    """One reading of one column.

    Attributes
    ----------
    column : str
        Of the table.
    way : str
        ``x``, ``1/x``, ``log(x)``, ``1/(1 + x)``, ``log(1 + x)``, or ``is`` for a category.
    category : str
        The category that it is.
    """

    column: str
    way: str
    category: str = ""

    def __str__(self) -> str:
        if self.way == "is":
            return f"[{self.column} is {self.category}]"
        return self.way.replace("x", self.column)

    def values(self, table: pd.DataFrame) -> FloatArray:
        """Evaluate it for each row of a table.

        Raises
        ------
        InputError
            If a column that was positive when the terms were made is not so now.
        """
        if self.way == "is":
            return (table[self.column] == self.category).to_numpy(dtype=float)
        x: FloatArray = table[self.column].to_numpy(dtype=float)
        if self.way in ("1/x", "log(x)") and not (x > 0).all():
            raise InputError(
                f"{self.column} was positive in training and now holds {int((x <= 0).sum())} values that are not; "
                f"{self} cannot be computed."
            )
        if self.way in ("1/(1 + x)", "log(1 + x)") and not (x >= 0).all():
            raise InputError(f"{self.column} was never negative in training and now is; {self} cannot be computed.")
        return _WAYS[self.way](x)


_WAYS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "x": lambda x: x,
    "1/x": lambda x: 1 / x,
    "log(x)": np.log,
    "1/(1 + x)": lambda x: 1 / (1 + x),
    "log(1 + x)": np.log1p,
}
Term: TypeAlias = tuple[Factor, ...]


def factors_of(table: pd.DataFrame, *, inverse: bool = True, log: bool = True) -> list[Factor]:
    """List the readings of every column that varies.

    Parameters
    ----------
    table : DataFrame
        Numbers and text. A positive column gets ``1/x`` and ``log(x)``, one with zeros ``1/(1 + x)`` and
        ``log(1 + x)``, one with negative values neither; text gets one factor a category.
    inverse, log : bool, default=True
        Whether to list those.

    Examples
    --------
    >>> table = pd.DataFrame({"n": [1.0, 2.0], "zeros": [0.0, 1.0], "gpu": ["T4", "L4"], "same": 1.0})
    >>> [str(factor) for factor in factors_of(table, log=False)]
    ['n', '1/n', 'zeros', '[gpu is L4]', '[gpu is T4]']
    """
    return [factor for name in table.columns for factor in _readings(str(name), table[name], inverse, log)]


def _readings(name: str, column: pd.Series, inverse: bool, log: bool) -> Iterator[Factor]:
    if not pd.api.types.is_numeric_dtype(column):
        categories = sorted(set(column))
        yield from (Factor(name, "is", category) for category in categories if len(categories) > 1)
        return
    low, high = column.min(), column.max()
    if low == high:
        return
    inverted, logged = ("1/x", "log(x)") if low > 0 else ("1/(1 + x)", "log(1 + x)")
    yield Factor(name, "x")
    # A column of zeros and ones is its own logarithm and inverse, up to a constant.
    if low > 0 or (low == 0 and column.nunique() > 2):
        yield from [Factor(name, inverted)] * inverse
        yield from [Factor(name, logged)] * log


def products(factors: Sequence[Factor], degree: int) -> list[Term]:
    """List all products of up to `degree` factors that make sense.

    A column never meets its own inverse, nor a category another one of its column.

    Examples
    --------
    >>> n, inverse, gpu = Factor("n", "x"), Factor("n", "1/x"), Factor("gpu", "is", "T4")
    >>> [term_text(term) for term in products([n, inverse, gpu], 2)]
    ['n', '1 / n', '[gpu is T4]', 'n * n', 'n * [gpu is T4]', '1 / n / n', '[gpu is T4] / n']
    """
    counts = range(1, degree + 1)
    return [term for count in counts for term in combinations_with_replacement(factors, count) if _makes_sense(term)]


def n_products(n_factors: int, degree: int) -> int:
    """Most terms that `products` can list."""
    return sum(comb(n_factors + count - 1, count) for count in range(1, degree + 1))


def _makes_sense(term: Term) -> bool:
    ways: dict[str, set[str]] = {}
    for factor in term:
        ways.setdefault(factor.column, set()).add(factor.way)
    repeated = len(ways) < len(term)
    return not repeated or all(
        alone in _TOGETHER for name, alone in ways.items() if sum(factor.column == name for factor in term) > 1
    )


def evaluate_terms(terms: Sequence[Term], table: pd.DataFrame) -> FloatArray:
    """Evaluate terms, shape (n_rows, n_terms)."""
    values = {factor: factor.values(table) for factor in dict.fromkeys(factor for term in terms for factor in term)}
    columns = np.empty((len(table), len(terms)), order="F")
    for position, term in enumerate(terms):
        columns[:, position] = np.prod([values[factor] for factor in term], axis=0)
    return columns


def term_text(term: Term) -> str:
    """Write a term, inverses as divisions."""
    above = [str(factor) for factor in term if not factor.way.startswith("1/")]
    below = [str(factor).removeprefix("1/") for factor in term if factor.way.startswith("1/")]
    return " / ".join([" * ".join(above) or "1", *below])

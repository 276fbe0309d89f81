"""Candidate terms of a formula: columns, their inverses and logarithms, categories, and products of these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations_with_replacement
from math import comb
from typing import NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand._validation import InputError

_TRANSFORMS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "x": lambda x: x,
    "1/x": lambda x: 1 / x,
    "log(x)": np.log,
    "1/(1 + x)": lambda x: 1 / (1 + x),
    "log(1 + x)": np.log1p,
}
#: Transforms of one column that may stand in one product: powers, and x log x.
_COMBINABLE = ({"x"}, {"1/x"}, {"x", "log(x)"})


class Factor(NamedTuple):
    """One transform of one column; ``is`` is the indicator of a `category`."""

    column: str
    transform: str
    category: str = ""

    def __str__(self) -> str:
        if self.transform == "is":
            return f"[{self.column} is {self.category}]"
        return self.transform.replace("x", self.column)

    def values(self, table: pd.DataFrame) -> FloatArray:
        """Evaluate it for each row of a table; raises `InputError` if a column has left the domain of the transform."""
        if self.transform == "is":
            return (table[self.column] == self.category).to_numpy(dtype=float)
        x: FloatArray = table[self.column].to_numpy(dtype=float)
        if self.transform in ("1/x", "log(x)") and not (x > 0).all():
            raise InputError(
                f"{self.column} was positive in training and now holds {int((x <= 0).sum())} values that are not; "
                f"{self} cannot be computed."
            )
        if self.transform in ("1/(1 + x)", "log(1 + x)") and not (x >= 0).all():
            raise InputError(f"{self.column} was never negative in training and now is; {self} cannot be computed.")
        return _TRANSFORMS[self.transform](x)


Term: TypeAlias = tuple[Factor, ...]


def candidate_factors(table: pd.DataFrame, *, inverse: bool = True, log: bool = True) -> list[Factor]:
    """List the transforms of every column that varies.

    A positive column gets ``1/x`` and ``log(x)``, one with zeros ``1/(1 + x)`` and ``log(1 + x)``, one with negative
    values neither; text gets one indicator a category.

    Examples
    --------
    >>> table = pd.DataFrame({"n": [1.0, 2.0, 4.0], "gpu": ["T4", "A10", "T4"], "same": 7.0})
    >>> [str(factor) for factor in candidate_factors(table)]
    ['n', '1/n', 'log(n)', '[gpu is A10]', '[gpu is T4]']
    """
    return [factor for name in table.columns for factor in _factors_of(str(name), table[name], inverse, log)]


def _factors_of(name: str, column: pd.Series, inverse: bool, log: bool) -> Iterator[Factor]:
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
    """List all products of up to `degree` factors, without a column times its inverse or two categories of one column.

    Examples
    --------
    >>> n, inverse, gpu = Factor("n", "x"), Factor("n", "1/x"), Factor("gpu", "is", "T4")
    >>> [format_term(term) for term in products([n, inverse, gpu], 2)]
    ['n', '1 / n', '[gpu is T4]', 'n * n', 'n * [gpu is T4]', '1 / n / n', '[gpu is T4] / n']
    """
    counts = range(1, degree + 1)
    return [term for n in counts for term in combinations_with_replacement(factors, n) if _is_admissible(term)]


def n_products(n_factors: int, degree: int) -> int:
    """Upper bound on the length of `products`."""
    return sum(comb(n_factors + count - 1, count) for count in range(1, degree + 1))


def _is_admissible(term: Term) -> bool:
    counts = Counter(factor.column for factor in term)
    return all(
        {factor.transform for factor in term if factor.column == name} in _COMBINABLE
        for name, count in counts.items()
        if count > 1
    )


def evaluate_terms(terms: Sequence[Term], table: pd.DataFrame) -> FloatArray:
    """Evaluate terms, shape (n_rows, n_terms)."""
    values = {factor: factor.values(table) for factor in dict.fromkeys(factor for term in terms for factor in term)}
    columns = np.empty((len(table), len(terms)), order="F")
    for position, term in enumerate(terms):
        columns[:, position] = np.prod([values[factor] for factor in term], axis=0)
    return columns


def format_term(term: Term) -> str:
    """Write a term, inverses as divisions."""
    numerator = [str(factor) for factor in term if not factor.transform.startswith("1/")]
    denominator = [str(factor).removeprefix("1/") for factor in term if factor.transform.startswith("1/")]
    return " / ".join([" * ".join(numerator) or "1", *denominator])

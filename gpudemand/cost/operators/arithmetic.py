"""Floating-point operations of matrix products, convolutions, attention and Fourier transforms.

A multiply-add counts as 2. Element-wise operators, normalisations and pools are bound by memory bandwidth: they count
bytes and no operations, as in ``torch.utils.flop_counter``. Biases and masks count nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def weighted_flops(positions: float, weights: float) -> float:
    """Operations of a layer that uses each of its weights once at every position.

    Parameters
    ----------
    positions : float
        Convolution: batch x output positions (input positions if transposed); dense layer: batch x tokens; recurrent
        layer: batch x time steps.
    weights : float
        Elements of the weights.

    Examples
    --------
    A 3x3 convolution from 3 to 64 channels on 32x32 positions:

    >>> weighted_flops(32 * 32, 64 * 3 * 3 * 3)
    3538944.0
    """
    return 2.0 * positions * weights


def matmul_flops(outputs: float, inner: float) -> float:
    """Operations of a matrix product of `outputs` elements, each a sum over `inner` products.

    Examples
    --------
    >>> matmul_flops(10 * 10, 64)
    12800.0
    """
    return 2.0 * outputs * inner


def attention_flops(query: Sequence[int], key: Sequence[int], value: Sequence[int]) -> float:
    """Operations of scaled dot-product attention: two matrix products, without savings by a mask.

    Parameters
    ----------
    query, key, value : sequence of int
        Shapes ``(..., heads, tokens, size)``.

    Examples
    --------
    >>> attention_flops((1, 8, 128, 64), (1, 8, 128, 64), (1, 8, 128, 64))
    33554432.0
    """
    return 2.0 * math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


def fourier_flops(elements: float, length: float, *, real: bool) -> float:
    """Operations of fast Fourier transforms along axes of `length` elements together: ``5 n log2(n)``, half if real.

    Parameters
    ----------
    elements : float
        Elements of the signal, in all transforms.
    length : float
        Elements of one transform, the product of its axes.
    real : bool
        Whether the signal is real.

    References
    ----------
    Van Loan, "Computational Frameworks for the Fast Fourier Transform", SIAM 1992.

    Examples
    --------
    >>> fourier_flops(3 * 1024, 1024, real=False)
    153600.0
    """
    return (2.5 if real else 5.0) * elements * math.log2(max(length, 1.0))


def einsum_flops(equation: str, shapes: Sequence[Sequence[int]]) -> float:
    """Operations of an Einstein sum contracted from left to right; zero where no product is summed.

    Parameters
    ----------
    equation : str
        As for ``numpy.einsum``; an ellipsis stands for axes that all operands share.
    shapes : sequence of shapes
        One an operand.

    Examples
    --------
    >>> einsum_flops("bqhd,bkhd->bhqk", [(1, 10, 2, 8), (1, 10, 2, 8)])
    3200.0
    """
    terms, _, result = equation.replace(" ", "").partition("->")
    labels = [_axes(term, len(shape)) for term, shape in zip(terms.split(","), shapes, strict=True)]
    output = set(_axes(result, max(map(len, shapes)))) if result else _implicit_output(labels)
    pairs = zip(labels, shapes, strict=True)
    size = {name: extent for term, shape in pairs for name, extent in zip(term, shape, strict=True)}
    contracted, flops = set(labels[0]), 0.0
    for position, term in enumerate(labels[1:], start=2):
        later = output.union(*labels[position:])
        joint = contracted | set(term)
        if joint - later:
            flops += 2.0 * math.prod(size.get(name, 1) for name in joint)
        contracted = joint & later
    return flops


def _axes(term: str, n_axes: int) -> list[str]:
    """Name each axis of a term; the axes under an ellipsis are numbered from the right."""
    if "..." not in term:
        return list(term)
    before, after = term.split("...")
    hidden = n_axes - len(before) - len(after)
    return [*before, *(str(i) for i in range(hidden, 0, -1)), *after]


def _implicit_output(labels: list[list[str]]) -> set[str]:
    flat = [name for term in labels for name in term]
    return {name for name in flat if flat.count(name) == 1 or name.isdigit()}

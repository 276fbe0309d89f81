from __future__ import annotations

import pytest

from gpudemand.cost.operators import attention_flops, einsum_flops, product_flops


@pytest.mark.parametrize(
    ("equation", "shapes", "outputs", "expected"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)], 8, 2 * 24),
        ("bhqd,bhkd->bhqk", [(2, 4, 5, 8), (2, 4, 6, 8)], 240, 2 * 2 * 4 * 5 * 6 * 8),
        ("...ij,...jk->...ik", [(7, 2, 3), (7, 3, 4)], 56, 2 * 7 * 24),
        ("i...j,jk->i...k", [(2, 7, 3), (3, 4)], 56, 2 * 7 * 24),
        ("ij,ij->ij", [(2, 3), (2, 3)], 6, 0),
        ("ij->ji", [(2, 3)], 6, 0),
    ],
)
def test_einstein_sums(equation, shapes, outputs, expected):
    assert einsum_flops(equation, shapes, outputs) == expected


def test_formulas_agree_where_they_overlap():
    assert product_flops(10, 4 * 5) == einsum_flops("ti,io->to", [(10, 4), (4, 5)], 50)
    query, key = (2, 4, 10, 8), (2, 4, 12, 8)
    scores = einsum_flops("bhqd,bhkd->bhqk", [query, key], 2 * 4 * 10 * 12)
    assert attention_flops(query, key, key) == 2 * scores

from __future__ import annotations

import pytest

from gpudemand.cost.operators import attention_flops, einsum_flops, weighted_flops


@pytest.mark.parametrize(
    ("equation", "shapes", "expected"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)], 2 * 24),
        ("ij,jk", [(2, 3), (3, 4)], 2 * 24),
        ("bhqd,bhkd->bhqk", [(2, 4, 5, 8), (2, 4, 6, 8)], 2 * 2 * 4 * 5 * 6 * 8),
        ("...ij,...jk->...ik", [(7, 2, 3), (7, 3, 4)], 2 * 7 * 24),
        ("ij,ij->ij", [(2, 3), (2, 3)], 0),
        ("ij->ji", [(2, 3)], 0),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)], 2 * (2 * 3 * 4 + 2 * 4 * 5)),
    ],
)
def test_einstein_sums(equation, shapes, expected):
    assert einsum_flops(equation, shapes) == expected


def test_formulas_agree_where_they_overlap():
    assert weighted_flops(10, 4 * 5) == einsum_flops("ti,io->to", [(10, 4), (4, 5)])
    query, key = (2, 4, 10, 8), (2, 4, 12, 8)
    scores = einsum_flops("bhqd,bhkd->bhqk", [query, key])
    assert attention_flops(query, key, key) == 2 * scores

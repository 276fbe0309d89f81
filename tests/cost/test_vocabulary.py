from __future__ import annotations

import pytest

from gpudemand.cost.graph_features import OPERATOR_CLASSES
from gpudemand.cost.operators import (
    CLASS_OF,
    KERNEL_OF,
    KINDS,
    SAVES,
    UNIT_OF,
    VOCABULARY,
    convolution_kind,
    tensorflow_type,
    torch_type,
)


def test_vocabulary_is_closed():
    assert set(SAVES) == set(VOCABULARY)
    assert set(CLASS_OF.values()) <= {*OPERATOR_CLASSES, "conv"}
    assert set(KERNEL_OF.values()) <= {*KINDS, ""}
    assert set(UNIT_OF.values()) == {"matrix", "vector", "memory"}
    assert len(VOCABULARY) == len(set(VOCABULARY))
    assert torch_type("_no_such_operator") == tensorflow_type("NoSuchOp") == "Other"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("conv2d", "Conv"), ("add_", "Add"), ("__iadd__", "Add"), ("__setitem__", "Scatter"), ("_softmax", "Softmax")],
)
def test_names_of_torch(name, expected):
    assert torch_type(name) == expected


@pytest.mark.parametrize(
    ("kernel", "groups", "channels", "expected"),
    [
        ((1, 1), 1, 8, "1x1"),
        ((3, 3), 1, 8, "3x3"),
        ((1, 7), 1, 8, "large"),
        ((3, 3), 4, 8, "grouped"),
        ((1, 1), 8, 8, "depthwise"),
        ((3,), 1, 1, "3x3"),
    ],
)
def test_kinds_of_convolutions(kernel, groups, channels, expected):
    assert convolution_kind(kernel, groups, channels) == expected

"""A user-defined network is traced in both frameworks and predicted from measurements of others."""

from __future__ import annotations

import numpy as np
import pytest

import gpudemand as gd
from gpudemand.cost import features_from_jobs, features_from_rows, load_architectures, load_measurements

pytest.importorskip("torch")
pytest.importorskip("keras")
SHAPE = (3, 40, 40)


def torch_network():
    """Two branches with a shared convolution, a custom layer, and a gate."""
    import torch
    from torch import nn

    class Scale(nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.factor = nn.Parameter(torch.ones(channels, 1, 1))

        def forward(self, x):
            return x * self.factor

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Conv2d(3, 24, 3, padding=1)
            self.shared = nn.Conv2d(24, 24, 3, padding=1)
            self.scale, self.norm = Scale(24), nn.BatchNorm2d(48)
            self.gate, self.head = nn.Linear(48, 48), nn.Linear(48, 10)

        def forward(self, x):
            x = torch.relu(self.stem(x))
            once = torch.relu(self.shared(x))
            twice = self.scale(torch.relu(self.shared(once)))
            x = self.norm(torch.cat([once, twice], 1)).mean((2, 3))
            return self.head(x * torch.sigmoid(self.gate(x)))

    return Network()


def keras_network():
    import keras
    from keras import layers

    class Scale(layers.Layer):
        def build(self, shape):
            self.factor = self.add_weight(shape=(shape[-1],), initializer="ones")

        def call(self, x):
            return x * self.factor

    shared = layers.Conv2D(24, 3, padding="same", activation="relu")
    inputs = keras.Input((40, 40, 3))
    once = shared(layers.Conv2D(24, 3, padding="same", activation="relu")(inputs))
    twice = Scale()(shared(once))
    x = layers.BatchNormalization()(layers.Concatenate()([once, twice]))
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Multiply()([x, layers.Dense(48, activation="sigmoid")(x)])
    return keras.Model(inputs, layers.Dense(10)(x))


@pytest.fixture(scope="module")
def rows():
    measured = load_measurements()
    return measured[measured["status"] == "ok"].iloc[::9].reset_index(drop=True)


@pytest.fixture(scope="module")
def jobs():
    same = {"optimizer": "adam", "device": "AMD EPYC"}
    return [
        gd.TrainingJob(model, shape, batch_size=batch_size, **same)
        for model, shape in ((torch_network(), SHAPE), (keras_network(), None))
        for batch_size in (16, 64)
    ]


def test_both_frameworks_hold_the_same_network(jobs):
    torch, keras = jobs[0].graph, jobs[2].graph
    assert torch.n_parameters == keras.n_parameters == 24 * 28 + 24 * 217 + 24 + 2 * 48 + 48 * 49 + 490
    assert torch.flops == pytest.approx(keras.flops, rel=0.01)
    # The shared convolution counts once a call.
    assert [sum(graph.nodes["type"] == "Conv") for graph in (torch, keras)] == [3, 3]


@pytest.mark.slow
@pytest.mark.parametrize(("target", "column"), [("time", "step_time_s"), ("memory", "memory_gib")])
def test_it_is_predicted_from_measurements_of_others(rows, jobs, target, column):
    known = features_from_rows(rows, load_architectures())
    model = gd.TrainingCostRegressor(target, "extra_trees", n_splits=3).fit(known, rows[column], rows["network"])
    X = features_from_jobs(jobs).assign(threads=2)
    cost, (low, high) = model.predict(X), model.predict_interval(X, 90).T
    assert (low < cost).all()
    assert (cost < high).all()
    assert (cost[[1, 3]] > 1.5 * cost[[0, 2]]).all(), "four times the batch costs more"
    similar = rows.loc[known["flops"].between(0.5 * X["flops"].min(), 2 * X["flops"].max()), column]
    assert ((cost > similar.min() / 2) & (cost < similar.max() * 2)).all()
    assert np.isfinite(cost).all()

"""scikit-learn's own checks of every transformer of series, and of the segmenter."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from sklearn.utils.estimator_checks import check_estimator

import gpudemand.segments as gs

#: What users of scikit-learn cannot expect of series.
EXEMPT = {
    "check_n_features_in_after_fitting": "series may be longer or shorter than those that were fitted",
    "check_transformer_general": "series may be longer or shorter than those that were fitted",
    "check_dtype_object": "an InputError, which is a ValueError, and not a TypeError",
    "check_clustering": "blobs in a plane are no series",
}
BLOCKS = [gs.PersistenceCurves(), gs.PersistenceStatistics(), gs.LogSpectrum(), gs.UserPresence(), gs.RFM()]
if find_spec("gph"):
    BLOCKS.append(gs.RipsStatistics(3))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Can't check dok sparse matrix for nan or inf")
@pytest.mark.parametrize(
    "estimator", [*BLOCKS, gs.TopologicalSegmenter(2, random_state=0)], ids=lambda estimator: type(estimator).__name__
)
def test_scikit_learn_checks(estimator):
    results = check_estimator(estimator, on_skip=None, on_fail=None)
    failed = {result["check_name"] for result in results if result["status"] == "failed"}
    assert len(results) > 40
    assert failed <= set(EXEMPT)


def test_a_segmenter_is_a_transformer():
    series = [[0.0, 1, 0, 1, 0, 1, 0, 1], [1.0, 1, 1, 1, 2, 2, 2, 2], [5.0, 1, 5, 1, 5, 1, 5, 1]]
    segmenter = gs.TopologicalSegmenter(2, random_state=0)
    assert segmenter.fit_transform(series).equals(segmenter.features_)

"""Array types that recur in signatures, and the dtype of text columns."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]

#: Text is Arrow-backed with NaN for missing: what pandas 3 calls ``str``, the same on pandas 2.3.
STRING = pd.StringDtype("pyarrow", na_value=np.nan)

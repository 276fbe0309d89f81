"""User segmentation by the shape of usage: persistence, spectrum and RFM features, and clustering.

Names are loaded lazily: compiled ones import numba.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

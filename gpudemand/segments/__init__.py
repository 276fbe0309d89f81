"""Users by the shape of their usage: persistence, spectrum and RFM features of series.

Names are loaded when first used: the first use of a compiled one loads numba.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

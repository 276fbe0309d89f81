"""Forecasts of more series than fit into memory, chunk by chunk, in a folder from which a stopped run goes on.

Names are loaded when first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

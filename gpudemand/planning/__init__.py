"""How many GPUs, when, and what if: from single jobs to demand, and from demand to a plan.

Names are loaded when first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

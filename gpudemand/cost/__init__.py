"""What a training job costs: the operator graph of a network, its features, and predictions made from them.

Names are loaded when first used: a process that only measures should not wait for what only predicts.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

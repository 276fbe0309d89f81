from .forecast import bulk_forecast

__all__ = ["bulk_forecast"]

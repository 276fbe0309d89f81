from .gpudemand.bulk import bulk_forecast

__all__ = ["bulk_forecast"]

"""A folder of tables that grows: Parquet files by month, which any tool can read, and a manifest with checksums."""

from gpudemand.store.store import Store, arrow_table, is_store, open_store, read_store

__all__ = ["Store", "arrow_table", "is_store", "open_store", "read_store"]

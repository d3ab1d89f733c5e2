"""Retrieval measured by answer position: data sets, metrics, statistics, sweeps."""

"""Tasks whose examples are time series."""

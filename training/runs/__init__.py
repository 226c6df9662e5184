"""Runs: training, resuming, logging."""

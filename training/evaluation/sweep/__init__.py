"""Sweeps: grids of settings over seeds, trained, measured and compared."""

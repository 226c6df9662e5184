"""Stochastic positional encodings (Liutkus et al., 2021)."""

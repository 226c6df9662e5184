"""Causal linear attention."""

"""Reproducible noise that filtered codes are made of."""

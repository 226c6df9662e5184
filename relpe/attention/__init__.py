"""Attention operations and layers."""

"""Softmax attention within a learned window."""

"""Biases and limits that guide sampling beyond the grammar."""

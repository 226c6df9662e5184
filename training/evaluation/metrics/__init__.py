"""Measures of a trained model: likelihood by position, style and structure of what it makes."""

"""Measures of a trained model: likelihood by position, and style and structure of its music."""

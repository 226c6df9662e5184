"""Measuring models and the music they generate."""

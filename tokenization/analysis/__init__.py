"""Chords and beats estimated from notes."""

"""Estimation of chords and beats from notes, and names of keys."""

"""A part of a piece that is to be written: what users choose, and how the model reads the rest."""

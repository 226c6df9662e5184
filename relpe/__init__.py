"""Relative positional encodings for attention of linear cost, and the models built with them."""

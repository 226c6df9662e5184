"""Classifiers of sequences and grids, without causality."""

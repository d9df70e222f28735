"""Readers of data/recordings and data/check: what real clusters showed."""

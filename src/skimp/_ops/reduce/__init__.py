"""Reductions, running results, orders and whole-row functions."""

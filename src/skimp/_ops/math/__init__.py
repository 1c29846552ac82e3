"""Pointwise arithmetic and functions of numbers."""

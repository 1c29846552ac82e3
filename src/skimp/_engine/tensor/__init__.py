"""Tensor: a storage seen through a layout as elements of a dtype."""

"""Tensors from nothing, from data, and handed to others."""

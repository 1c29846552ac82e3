"""The lens for programs that run on PyTorch itself: the same report, from PyTorch's own events.

PyTorch is imported here alone, and only when somebody asks for it (`skimp run --engine torch`).
"""

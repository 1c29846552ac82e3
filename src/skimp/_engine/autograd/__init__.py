"""Reverse-mode differentiation: the graph of nodes, what it saves, and how it runs."""

from skimp._engine.autograd import methods  # noqa: F401  (gives the Tensor class its methods)

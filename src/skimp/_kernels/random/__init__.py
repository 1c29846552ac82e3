"""Random numbers on arrays, PyTorch's bits."""

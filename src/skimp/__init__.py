"""skimp: PyTorch's tensors and memory model, where memory comes first."""

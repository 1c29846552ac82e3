"""What a tensor is and how an op runs: tensor, memory, eval, autograd, dispatch."""

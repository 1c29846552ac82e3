"""torch.cuda on a machine without CUDA: not available, and its memory counters count the host."""

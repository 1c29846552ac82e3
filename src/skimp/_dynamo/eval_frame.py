"""torch._dynamo.eval_frame: the class that compiled modules would have."""

from __future__ import annotations

__all__ = ["OptimizedModule"]


class OptimizedModule:
    """What `torch.compile(module)` gives in PyTorch: programs ask for it; nothing is one here."""

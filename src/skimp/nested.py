"""torch.nested: refused, for there are no nested tensors."""

from __future__ import annotations

from skimp._compat import left_out, refusals

__all__: list[str] = []
__all__.extend(left_out.REASONS[__name__])
__getattr__ = refusals.names(__name__)

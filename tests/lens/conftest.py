from __future__ import annotations

from tests.support.alone import alone

__all__ = ["alone"]

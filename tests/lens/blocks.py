"""What programs of these tests are made of."""

from __future__ import annotations

from typing import Any

from skimp import nn


class Block(nn.Module):
    """The part of a transformer that looks at each place by itself."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x: Any) -> Any:
        return x + self.mlp(self.norm(x))

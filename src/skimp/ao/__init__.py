"""torch.ao: quantisation, refused."""

from skimp.ao import quantization

__all__ = ["quantization"]

"""How ops run on tensors under vmap: the rules that rows name."""

from skimp._ops.batching import dims, layers, places, products

__all__ = ["dims", "layers", "places", "products"]

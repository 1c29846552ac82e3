"""torch._higher_order_ops: loops as functions. They run at once; nothing is traced."""

from skimp._higher_order_ops.associative_scan import associative_scan
from skimp._higher_order_ops.map import map
from skimp._higher_order_ops.scan import scan
from skimp._higher_order_ops.while_loop import while_loop

__all__ = ["associative_scan", "map", "scan", "while_loop"]

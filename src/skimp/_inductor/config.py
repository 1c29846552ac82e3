"""torch._inductor.config: flags that can be set and read, and change nothing."""

from types import SimpleNamespace

debug = False
coordinate_descent_tuning = False
epilogue_fusion = True
fx_graph_cache = True
max_autotune = False
shape_padding = True
cpp = SimpleNamespace(threads=-1)
triton = SimpleNamespace(cudagraphs=False, unique_kernel_names=True)

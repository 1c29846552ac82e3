"""torch._dynamo.config: flags that can be set and read, and change nothing."""

suppress_errors = False
cache_size_limit = recompile_limit = 8
verbose = False
capture_scalar_outputs = False
optimize_ddp = True

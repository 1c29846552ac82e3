"""functorch.experimental: what PyTorch has at the same time in `torch.func`."""

from torch.func import (
    functionalize as functionalize,
    hessian as hessian,
    jacfwd as jacfwd,
    jvp as jvp,
    replace_all_batch_norm_modules_ as replace_all_batch_norm_modules_,
)

"""The name `functorch`, under which PyTorch has `torch.func` too: while `torch` means skimp."""

from torch import __version__ as __version__
from torch._functorch.deprecated import (
    combine_state_for_ensemble as combine_state_for_ensemble,
    functionalize as functionalize,
    grad as grad,
    grad_and_value as grad_and_value,
    hessian as hessian,
    jacfwd as jacfwd,
    jacrev as jacrev,
    jvp as jvp,
    make_functional as make_functional,
    make_functional_with_buffers as make_functional_with_buffers,
    vjp as vjp,
    vmap as vmap,
)
from torch._functorch.make_functional import (
    FunctionalModule as FunctionalModule,
    FunctionalModuleWithBuffers as FunctionalModuleWithBuffers,
)
from torch._functorch.python_key import make_fx as make_fx

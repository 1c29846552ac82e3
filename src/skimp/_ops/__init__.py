"""The ops, a room per family: importing this package declares every row, in whichever of its files
it stands.
"""

from importlib import import_module
from pkgutil import walk_packages

from skimp._compat.modules import lookup as _lookup
from skimp._engine.dispatch import describing, unbound
from skimp._ops import for_autograd, foreach

for _found in walk_packages(__path__, f"{__name__}."):
    import_module(_found.name)

foreach.declare_all()
for_autograd.give_ops()
describing.describe_all()
unbound.unbind_all()

__getattr__ = _lookup(__name__)  # PyTorch has a module of this name

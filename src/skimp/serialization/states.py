"""What listed instances take as their state: attributes, never methods, in the types that the
classes' own code goes through when it takes them.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from typing import Any, Final

import numpy as np

from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Tensor
from skimp.nn.modules.module import Module
from skimp.serialization.limits import refuse, shown
from skimp.serialization.plain import integer

TABLES: Final = (dict, OrderedDict)


def checked(found: Any, state: Any) -> dict[str, Any]:
    """A state that is a dict of plain names.

    Names with two underscores on both sides are what Python itself looks for on an instance
    (`copy.deepcopy` calls `__deepcopy__`), so no file sets them.
    """
    if type(state) not in TABLES:
        refuse(f"the state of {shown(found)} in {shown(state)}")
    for name in state:
        if type(name) is not str or (name[:2] == "__" and name[-2:] == "__"):
            refuse(f"the attribute {shown(name)} of {shown(found)}")
    return dict(state)


def attributes(found: Any, state: Any) -> None:
    """Attributes of an instance that has nothing else."""
    if state is not None:
        found.__dict__.update(checked(found, state))


_MODULE_TABLES: Final = ("_parameters", "_buffers", "_modules")


def module(found: Any, state: Any) -> None:
    """A module's attributes."""
    type(found).__setstate__(found, check_module(found, state))


def check_module(found: Any, state: Any) -> dict[str, Any]:
    """A module's state, whose tables must be dicts: its attributes are looked up in them."""
    new = checked(found, state)
    for name in _MODULE_TABLES:
        if type(new.get(name)) not in TABLES:
            refuse(f"a {type(found).__name__} whose {name} is {shown(new.get(name))}")
    for name in _MODULE_TABLES:
        for key in new[name]:
            if type(key) is not str:
                refuse(f"a {type(found).__name__} with {shown(key)} among its {name}")
    return new


def optimizer(found: Any, state: Any) -> None:
    """An optimizer's defaults, groups and state, whose options its code fills up."""
    new = checked(found, state)
    groups = new.get("param_groups")
    if (
        type(new.get("defaults")) not in TABLES
        or type(new.get("state")) not in (*TABLES, defaultdict)
        or type(groups) is not list
        or any(type(group) not in TABLES for group in groups)
    ):
        refuse(f"a {type(found).__name__} without the parts of one")
    type(found).__setstate__(found, new)


def handle(found: Any, state: Any) -> None:
    """A hook's handle: the hooks that it takes its own from, its number, and further tables."""
    if type(state) is not tuple or len(state) not in (2, 3):
        refuse(f"the state of a handle in {shown(state)}")
    tables = [state[0], *(state[2] if len(state) == 3 and type(state[2]) is tuple else ())]
    if any(table is not None and type(table) is not OrderedDict for table in tables):
        refuse("a handle of something else than hooks")
    integer(state[1], 0, 1 << 40)
    found.__setstate__((state[0], state[1], tuple(tables[1:])))


def wrapped_hook(found: Any, state: Any) -> None:
    """A hook that is called with its module: the hook, and the module, to which it refers
    weakly.
    """
    new = checked(found, state)
    if new.get("with_module") is not False and not isinstance(new.get("module"), Module):
        refuse("a hook of a module that is none")
    found.__setstate__({name: new.get(name) for name in ("hook", "with_module", "module")})


def ignored(found: Any, state: Any) -> None:
    """Nothing: what a generator was seeded from."""


def generator(found: Any, state: Any) -> None:
    """torch.Generator: its first seed, an offset that CPUs have not, and the bytes of its state."""
    if type(state) is not tuple or len(state) != 3 or not isinstance(state[2], Tensor):
        refuse(f"the state of a Generator in {shown(state)}")
    if state[2].dtype is not dtypes.uint8 or state[2].ndim != 1:
        refuse("the state of a Generator in something else than bytes")
    found.set_state(state[2])


def mt19937(found: Any, state: Any) -> None:
    """NumPy's Mersenne Twister: its place in the key is an index that NumPy does not check."""
    outer = state[0] if type(state) is tuple and state else state
    inner = outer.get("state") if type(outer) is dict else None
    key = inner.get("key") if type(inner) is dict else None
    if type(key) is not np.ndarray or key.dtype != np.uint32 or key.shape != (624,):
        refuse("a Mersenne Twister whose key is none")
    place = {"key": key, "pos": integer((inner or {}).get("pos"), 0, 624)}
    found.state = {"bit_generator": "MT19937", "state": place}


def pcg64(found: Any, state: Any) -> None:
    """NumPy's PCG64; the sequence that its seed came from is left out."""
    outer = state[0] if type(state) is tuple and state else state
    inner = outer.get("state") if type(outer) is dict else None
    if type(inner) is not dict:
        refuse("a PCG64 without its state")
    big = (1 << 128) - 1
    found.state = {
        "bit_generator": "PCG64",
        "state": {name: integer(inner.get(name), 0, big) for name in ("state", "inc")},
        "has_uint32": integer(outer.get("has_uint32"), 0, 1),
        "uinteger": integer(outer.get("uinteger"), 0, (1 << 32) - 1),
    }


def random_state(found: Any, state: Any) -> None:
    """numpy.random.RandomState, of a Mersenne Twister."""
    if type(state) is not dict or type(state.get("gauss")) is not float:
        refuse("the state of a RandomState")
    mt19937(found._bit_generator, state)
    new = found.get_state(legacy=False)
    new["has_gauss"] = integer(state.get("has_gauss"), 0, 1)
    new["gauss"] = state["gauss"]
    found.set_state(new)

"""What a module is made of: registered parameters, buffers and children, found by name or in
order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from skimp._engine.tensor.tensor import Tensor
from skimp._kernels import compiled
from skimp._ops.create.queries import typename
from skimp.nn.modules import hooks
from skimp.nn.parameter import Buffer, Parameter

# what forward methods read by `held` or likewise
READ: Final = (
    *("weight", "bias", "running_mean", "running_var", "num_batches_tracked"),
    *("weight_ih", "weight_hh", "bias_ih", "bias_hh"),
)
_loops: Final = compiled.loops()


def _attribute(owner: Any, name: str) -> Any:
    if not hasattr(owner, name):
        raise AttributeError(f"{owner._get_name()} has no attribute `{name}`")
    return getattr(owner, name)


class Tree:
    """A node with parameters, buffers and children; attributes are routed to where they belong."""

    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Any]
    _non_persistent_buffers_set: set[str]

    # no class of a program's says itself what its parameters are (as a property, for instance), so
    # that a forward method may read the tables
    _skimp_direct: bool = True

    def __init_subclass__(cls, **words: Any) -> None:
        super().__init_subclass__(**words)
        if _loops is not None:
            _loops.fill(cls)
        if not cls.__module__.startswith("skimp."):
            ways: Any = (cls.__getattr__, cls.__getattribute__)
            cls._skimp_direct = ways == (Tree.__getattr__, object.__getattribute__) and not any(
                [hasattr(cls, name) for name in READ]
            )

    # -- registering ------------------------------------------------------------------------------

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is no parameter; persistent ones are part of the state_dict."""
        if "_buffers" not in self.__dict__:
            raise AttributeError("cannot assign buffer before Module.__init__() call")
        _check_name(self, "buffer", name, self._buffers)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot assign '{typename(tensor)}' object to buffer '{name}' (torch Tensor or "
                "None required)"
            )
        for hook in hooks.REGISTRATION["buffer"].values():
            tensor = _replaced(hook(self, name, tensor), tensor)
        self._buffers[name] = tensor
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter under this name."""
        if "_parameters" not in self.__dict__:
            raise AttributeError("cannot assign parameter before Module.__init__() call")
        _check_name(self, "parameter", name, self._parameters)
        if param is None:
            self._parameters[name] = None
            return
        if not isinstance(param, Parameter):
            raise TypeError(
                f"cannot assign '{typename(param)}' object to parameter '{name}' "
                "(torch.nn.Parameter or None required)"
            )
        if param.grad_fn is not None:
            raise ValueError(
                f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be "
                f"created explicitly. To express '{name}' as a function of another Tensor, compute "
                "the value in the forward() method."
            )
        for hook in hooks.REGISTRATION["parameter"].values():
            param = _replaced(hook(self, name, param), param)
        self._parameters[name] = param

    def add_module(self, name: str, module: Any) -> None:
        """Add a child under this name."""
        if not isinstance(module, Tree) and module is not None:
            raise TypeError(f"{typename(module)} is not a Module subclass")
        if not isinstance(name, str):
            raise TypeError(f"module name should be a string. Got {typename(name)}")
        if hasattr(self, name) and name not in self._modules:
            raise KeyError(f"attribute '{name}' already exists")
        if "." in name:
            raise KeyError(f'module name can\'t contain ".", got: {name}')
        if name == "":
            raise KeyError('module name can\'t be empty string ""')
        self._modules[name] = _hooked_child(self, name, module)

    def register_module(self, name: str, module: Any) -> None:
        """The same as `add_module`."""
        self.add_module(name, module)

    # -- attributes -------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        own = self.__dict__
        found: Any = own.get("_parameters")
        if found is not None and name in found:
            return found[name]
        found = own.get("_modules")
        if found is not None and name in found:
            return found[name]
        found = own.get("_buffers")
        if found is not None and name in found:
            return found[name]
        raise AttributeError(
            f"'{type(self).__name__}' object has no attribute '{name}'", name=name, obj=self
        )

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        if isinstance(value, Parameter):
            if "_parameters" not in own:
                raise AttributeError("cannot assign parameters before Module.__init__() call")
            self._skimp_forget(name, own, self._buffers, self._modules)
            self.register_parameter(name, value)
        elif name in own.get("_parameters", ()):
            if value is not None:
                raise TypeError(
                    f"cannot assign '{typename(value)}' as parameter '{name}' (torch.nn.Parameter "
                    "or None expected)"
                )
            self.register_parameter(name, value)
        elif isinstance(value, Tree):
            if "_modules" not in own:
                raise AttributeError("cannot assign module before Module.__init__() call")
            self._skimp_forget(name, own, self._parameters, self._buffers)
            self._modules[name] = _hooked_child(self, name, value)
        elif name in own.get("_modules", ()):
            if value is not None:
                raise TypeError(
                    f"cannot assign '{typename(value)}' as child module '{name}' (torch.nn.Module "
                    "or None expected)"
                )
            self._modules[name] = _hooked_child(self, name, value)
        elif name in own.get("_buffers", ()) or isinstance(value, Buffer):
            self._skimp_assign_buffer(name, value)
        else:
            object.__setattr__(self, name, value)

    def _skimp_assign_buffer(self, name: str, value: Any) -> None:
        if value is not None and not isinstance(value, Tensor):
            raise TypeError(
                f"cannot assign '{typename(value)}' as buffer '{name}' (torch.nn.Buffer, "
                "torch.Tensor or None expected)"
            )
        if isinstance(value, Buffer):
            self._skimp_forget(name, self.__dict__, self._parameters, self._modules)
            persistent = value.persistent
        else:
            persistent = name not in self._non_persistent_buffers_set
        self.register_buffer(name, value, persistent)

    def _skimp_forget(self, name: str, *places: dict[str, Any]) -> None:
        for place in places:
            place.pop(name, None)
        self._non_persistent_buffers_set.discard(name)

    def __delattr__(self, name: str) -> None:
        if name in self._parameters:
            del self._parameters[name]
        elif name in self._buffers:
            del self._buffers[name]
            self._non_persistent_buffers_set.discard(name)
        elif name in self._modules:
            del self._modules[name]
        else:
            super().__delattr__(name)

    def __dir__(self) -> list[str]:
        names = {
            *dir(type(self)),
            *self.__dict__,
            *self._parameters,
            *self._modules,
            *self._buffers,
        }
        return sorted(n for n in names if not n[:1].isdigit())

    # -- looking up -------------------------------------------------------------------------------

    def get_submodule(self, target: str) -> Any:
        """The module below this one at a dotted path; "" is the module itself."""
        found: Any = self
        for name in target.split(".") if target else ():
            found = _attribute(found, name)
            if not isinstance(found, Tree):
                raise AttributeError(f"`{name}` is not an nn.Module")
        return found

    def set_submodule(self, target: str, module: Any, strict: bool = False) -> None:
        """Put a module at a dotted path; `strict` wants one there already."""
        if target == "":
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, Tree):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(f"{parent._get_name()} has no attribute `{name}`")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Tree):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(parent, name, module)

    def get_parameter(self, target: str) -> Any:
        """The parameter at a dotted path."""
        _, name, found = self._skimp_at(target)
        if not isinstance(found, Parameter):
            raise AttributeError(f"`{name}` is not an nn.Parameter")
        return found

    def get_buffer(self, target: str) -> Any:
        """The buffer at a dotted path."""
        owner, name, found = self._skimp_at(target)
        if name not in owner._buffers:
            raise AttributeError(f"`{name}` is not a buffer")
        return found

    def _skimp_at(self, target: str) -> tuple[Any, str, Any]:
        path, _, name = target.rpartition(".")
        owner = self.get_submodule(path)
        return owner, name, _attribute(owner, name)

    # -- walking ----------------------------------------------------------------------------------

    def _named_members(
        self,
        get_members_fn: Callable[[Any], Any],
        prefix: str = "",
        recurse: bool = True,
        remove_duplicate: bool = True,
    ) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        owners = (
            self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
            if recurse
            else [(prefix, self)]
        )
        for path, owner in owners:
            for name, member in get_members_fn(owner):
                if member is None or id(member) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(member))
                yield f"{path}.{name}" if path else name, member

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Parameters with their dotted names, each once."""
        return self._named_members(
            lambda m: m._parameters.items(), prefix, recurse, remove_duplicate
        )

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Parameters of this module and, with `recurse`, of those below it."""
        own, set_here = type(self), self.__dict__
        if (
            own.named_parameters is not Tree.named_parameters
            or own._named_members is not Tree._named_members
            or "named_parameters" in set_here
            or "_named_members" in set_here
        ):
            for _, param in self.named_parameters(recurse=recurse):
                yield param
            return
        seen: set[int] = set()
        owners: Any = self.named_modules() if recurse else [("", self)]
        for _, owner in owners:
            for found in owner._parameters.values():
                if found is not None and id(found) not in seen:
                    seen.add(id(found))
                    yield found

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Buffers with their dotted names, each once."""
        return self._named_members(lambda m: m._buffers.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Buffers of this module and, with `recurse`, of those below it."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def named_children(self) -> Iterator[tuple[str, Any]]:
        """The immediate children with their names, each once."""
        seen: set[int] = set()
        for name, module in self._modules.items():
            if module is not None and id(module) not in seen:
                seen.add(id(module))
                yield name, module

    def children(self) -> Iterator[Any]:
        """The immediate children."""
        for _, module in self.named_children():
            yield module

    def named_modules(
        self, memo: set[Any] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """This module and all below it with their dotted names, each once."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        open_ = [
            (prefix, iter(self._modules.items()))
        ]  # by a list: a value would pass each generator above
        while open_:
            path, children = open_[-1]
            for name, module in children:
                below = f"{path}.{name}" if path else name
                if module is None:
                    continue
                if type(module).named_modules is not Tree.named_modules:
                    yield from module.named_modules(memo, below, remove_duplicate)
                elif module not in memo:
                    if remove_duplicate:
                        memo.add(module)
                    yield below, module
                    open_.append((below, iter(module._modules.items())))
                    break
            else:
                open_.pop()

    def modules(self, remove_duplicate: bool = True) -> Iterator[Any]:
        """This module and all below it."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module


if _loops is not None:
    _loops.prepare(hooks.Hooked.__call__, Tree.__getattr__, hooks.SHARED)


def held(module: Any, names: Sequence[str]) -> list[Any]:
    """The module's attributes of these names, parameters and buffers first: an attribute that is
    none of Python's costs an exception before it is looked for among them.
    """
    if not getattr(module, "_skimp_direct", False):  # it may be no module
        return [getattr(module, n) for n in names]
    own, kept = module._parameters, module._buffers
    return [own[n] if n in own else kept[n] if n in kept else getattr(module, n) for n in names]


def _check_name(owner: Tree, kind: str, name: Any, place: dict[str, Any]) -> None:
    if not isinstance(name, str):
        raise TypeError(f"{kind} name should be a string. Got {typename(name)}")
    if "." in name:
        raise KeyError(f'{kind} name can\'t contain "."')
    if name == "":
        raise KeyError(f'{kind} name can\'t be empty string ""')
    if hasattr(owner, name) and name not in place:
        raise KeyError(f"attribute '{name}' already exists")


def _replaced(new: Any, old: Any) -> Any:
    return old if new is None else new


def _hooked_child(owner: Tree, name: str, module: Any) -> Any:
    for hook in hooks.REGISTRATION["module"].values():
        module = _replaced(hook(owner, name, module), module)
    return module

"""fully_shard: a module whose parameters, gradients and optimizer state are held once over all
ranks.

Each module it is called on is a unit, whose parameters come and go together: all of them before its
forward, which also asks for the next unit's, and before its backward, which asks for the unit's
before it.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterator
from typing import Any

from skimp._engine.autograd import tasks
from skimp._engine.autograd.modes import is_grad_enabled, no_grad
from skimp._engine.interrupts import region
from skimp._engine.tensor.tensor import Tensor
from skimp.distributed.device_mesh import DeviceMesh
from skimp.distributed.fsdp.parameters import ShardedParameter
from skimp.distributed.fsdp.policies import MixedPrecisionPolicy, OffloadPolicy
from skimp.distributed.groups import default
from skimp.distributed.reducer import tensors_in
from skimp.distributed.work import Work, progress
from skimp.nn.modules.module import Module
from skimp.utils._pytree import tree_map

IN_FLIGHT = 1  # gradients on their way while the next is computed: each holds its bytes


class Order:
    """The units of one model, in the order in which their forwards ran: who is asked for ahead."""

    def __init__(self) -> None:
        self.units: list[Unit] = []
        self.running: list[Work] = []
        self.queued = False

    def note(self, unit: Unit) -> None:
        """A unit's forward begins."""
        if unit not in self.units:
            self.units.append(unit)

    def after(self, unit: Unit) -> Unit | None:
        """Whose forward comes next."""
        i = self.units.index(unit) + 1
        return self.units[i] if i < len(self.units) else None

    def before(self, unit: Unit) -> Unit | None:
        """Whose backward comes next."""
        i = self.units.index(unit) if unit in self.units else 0
        return self.units[i - 1] if i else None

    def send(self, p: ShardedParameter, divisor: float) -> None:
        """A gradient goes on its way, once older ones have arrived."""
        if not self.queued:
            self.queued = True
            tasks.queue_callback(self.finish)
        progress.poll()
        while len(self.running) >= IN_FLIGHT:
            self.running.pop(0).wait()
            progress.poll()  # which forgets it, and with it the bytes
        work = p.reduce_gradient(divisor)
        if work is not None:
            self.running.append(work)

    def finish(self) -> None:
        """Backward is over: all gradients are there, and nothing is whole any more."""
        self.queued = False
        for work in self.running:
            work.wait()
        self.running.clear()
        for unit in self.units:
            unit.after_backward()


class Unit:
    """One module's own parameters, and those of modules below that are no units."""

    def __init__(self, module: Module, mesh: Any, reshard: bool, policy: Any, ignored: Any) -> None:
        self.module: weakref.ref[Module] = weakref.ref(module)
        self.order, self.policy, self.reshards = Order(), policy, reshard
        self.sync, self.divisor = True, float(mesh.size())
        self.mesh = mesh
        self.parameters = _sharded(module, mesh, policy, ignored)
        module.register_forward_pre_hook(_pre(self), prepend=True, with_kwargs=True)
        module.register_forward_hook(_post(self))
        module._register_state_dict_hook(_parts)

    def ask(self) -> None:
        """Begin to gather."""
        for p in self.parameters:
            p.begin_gather(self._arrived(p))

    def gather(self) -> None:
        """All of the parameters are there."""
        self.ask()
        for p in self.parameters:
            p.end_gather()

    def release(self, keep_small: bool = True) -> None:
        """Only this rank's parts are there."""
        for p in self.parameters:
            p.release(keep_small)

    def _arrived(self, p: ShardedParameter) -> Any:
        ref = weakref.ref(self)

        def hook(_: Tensor) -> None:
            unit = ref()
            if unit is not None and unit.sync:
                unit.order.send(p, unit.divisor)
                p.release(keep_small=True)

        return hook

    # -- around forward and backward --------------------------------------------------------------

    def before_forward(self, args: Any, kwargs: Any) -> Any:
        """All of the parameters, and the next unit's on their way."""
        self.order.note(self)
        self.gather()
        following = self.order.after(self)
        if following is not None and following is not self.order.units[0]:
            following.ask()
        dtype = self.policy.param_dtype
        if dtype is None or not self.policy.cast_forward_inputs:
            return None
        return _cast(args, dtype), _cast(kwargs, dtype)

    def after_forward(self, output: Any) -> Any:
        """The bytes go, unless backward follows at once; it will ask again."""
        if self.policy.output_dtype is not None:
            output = _cast(output, self.policy.output_dtype)
        recorded = [t for t in tensors_in(output) if t.requires_grad]
        if is_grad_enabled() and recorded:
            task: list[int | None] = [None]
            for t in recorded:
                t.register_hook(_again(self, task))
        if self.reshards or not (is_grad_enabled() and recorded):
            self.release()
        return output

    def before_backward(self) -> None:
        """All of the parameters, and those of the unit before on their way."""
        self.gather()
        following = self.order.before(self)
        if following is not None:
            following.ask()

    def after_backward(self) -> None:
        """What was asked for, and not used, goes too."""
        if self.sync or self.reshards:
            self.release(keep_small=False)


def _pre(unit: Unit) -> Any:
    def hook(module: Module, args: Any, kwargs: Any) -> Any:
        return unit.before_forward(args, kwargs)

    return hook


def _post(unit: Unit) -> Any:
    def hook(module: Module, args: Any, output: Any) -> Any:
        return unit.after_forward(output)

    return hook


def _again(unit: Unit, seen: list[int | None]) -> Any:
    """The first gradient of a unit's outputs to arrive in a backward."""

    def hook(_: Tensor) -> None:
        task = tasks.current_task()
        if seen[0] != task:
            seen[0] = task
            unit.before_backward()

    return hook


def _cast(value: Any, dtype: Any) -> Any:
    def one(t: Any) -> Any:
        return t.to(dtype) if isinstance(t, Tensor) and t.is_floating_point() else t

    return tree_map(one, value)


def _sharded(module: Module, mesh: Any, policy: Any, ignored: Any) -> list[ShardedParameter]:
    """The parameters of a unit; one that several modules share is one."""
    found: dict[int, ShardedParameter] = {}
    for owner in _own_modules(module):
        for name, p in list(owner._parameters.items()):
            if p is None or p in ignored:
                continue
            if id(p) in found:
                found[id(p)].places.append((owner, name))
                found[id(p)].show(False)
                continue
            made = ShardedParameter(owner, name, mesh, policy.param_dtype, policy.reduce_dtype)
            made.original = p  # type: ignore[attr-defined]  # so that its id stays its own
            found[id(p)] = made
    for made in found.values():
        del made.original  # type: ignore[attr-defined]
    return list(found.values())


def _own_modules(module: Module) -> Iterator[Module]:
    """The module and those below it, but for units and what is below them."""
    yield module
    for child in module.children():
        if not isinstance(child, FSDPModule):
            yield from _own_modules(child)


def _parts(module: Module, state: Any, prefix: str, metadata: Any) -> None:
    """A state dict's tensors say what they are parts of."""
    for p in module._unit.parameters:
        for owner, name in p.places:
            for path, below in module.named_modules():
                key = f"{prefix}{path}{'.' if path else ''}{name}"
                if below is owner and key in state:
                    state[key] = p.part(state[key])


class UnshardHandle:
    """What `unshard(async_op=True)` gives."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    def wait(self) -> None:
        """All of the parameters are there."""
        self._unit.gather()


class FSDPModule:
    """What fully_shard adds to a module's class."""

    _unit: Unit

    def _apply(self, fn: Any, *args: Any, **kwargs: Any) -> Any:
        found = super()._apply(fn, *args, **kwargs)  # type: ignore[misc]
        for p in self._unit.parameters:
            p.adopt()
        return found

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The module's own; parameters that are assigned are this rank's parts."""
        found = super().load_state_dict(*args, **kwargs)  # type: ignore[misc]
        for unit in self._units(recurse=True):
            for p in unit.parameters:
                p.adopt()
        return found

    def unshard(self, async_op: bool = False) -> UnshardHandle | None:
        """Gather this unit's parameters."""
        if async_op:
            self._unit.ask()
            return UnshardHandle(self._unit)
        self._unit.gather()
        return None

    def reshard(self) -> None:
        """Give them back."""
        self._unit.release(keep_small=False)

    def _units(self, recurse: bool) -> list[Unit]:
        modules = self.modules() if recurse else [self]  # type: ignore[attr-defined]
        return [m._unit for m in modules if isinstance(m, FSDPModule)]

    def set_requires_gradient_sync(
        self, requires_gradient_sync: bool, *, recurse: bool = True
    ) -> None:
        """Whether backward averages gradients over the ranks; else they add up, whole."""
        for unit in self._units(recurse):
            unit.sync = requires_gradient_sync

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """Accepted: every backward ends as the last one does."""

    def set_requires_all_reduce(self, requires_all_reduce: bool, *, recurse: bool = True) -> None:
        """Accepted: there is one group."""

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """Whether the bytes go between forward and backward."""
        for unit in self._units(recurse):
            unit.reshards = reshard_after_forward

    def set_gradient_divide_factor(self, factor: float) -> None:
        """Divide by this instead of the number of ranks."""
        self._unit.divisor = factor

    set_reduce_scatter_divide_factor = set_gradient_divide_factor

    def set_modules_to_forward_prefetch(self, modules: list[Any]) -> None:
        """Accepted: the unit whose forward came next is asked for."""

    def set_modules_to_backward_prefetch(self, modules: list[Any]) -> None:
        """Accepted: the unit whose forward came before is asked for."""


_classes: dict[type, type] = {}


def fully_shard(
    module: Any,
    *,
    mesh: DeviceMesh | None = None,
    reshard_after_forward: bool | int | None = None,
    shard_placement_fn: Any = None,
    mp_policy: MixedPrecisionPolicy = MixedPrecisionPolicy(),  # noqa: B008  (frozen)
    offload_policy: OffloadPolicy | None = None,
    ignored_params: set[Any] | None = None,
) -> Any:
    """Make the module a unit: of each parameter this rank keeps rows of dim 0. Call it on layers
    first, then on the whole: what is left is a unit of its own, whose parameters stay between
    forward and backward unless `reshard_after_forward`. Over a mesh of two dims, which have names,
    the last one's ranks have parts, and along the first one all have the same.

    The class of the module becomes a subclass with FSDPModule's methods. The module's parameters
    are this rank's parts, so an optimizer is made afterwards.

    Raises: AssertionError for a mesh of two dims without names, ValueError for a module that is a
    unit already.
    """
    if mesh is not None and mesh.ndim > 1 and mesh.mesh_dim_names is None:
        raise AssertionError("Please init the 2D mesh for HSDP with mesh_dim_names specified")
    mesh = mesh or DeviceMesh.from_group(default(), "cpu")
    for each in module if isinstance(module, (list, tuple)) else (module,):
        make_unit(each, mesh, reshard_after_forward, mp_policy, ignored_params or ())
    return module


def make_unit(
    module: Any,
    mesh: DeviceMesh,
    reshard_after_forward: bool | int | None,
    mp_policy: MixedPrecisionPolicy,
    ignored_params: Collection[Any],
) -> None:
    """One module a unit."""
    if isinstance(module, FSDPModule):
        raise ValueError("fully_shard has been called on this module already")
    below = [m for m in module.modules() if isinstance(m, FSDPModule)]
    reshards = not below if reshard_after_forward is None else bool(reshard_after_forward)
    unit = Unit(module, mesh, reshards, mp_policy, ignored_params)
    for inner in below:
        inner._unit.order = unit.order
    cls = type(module)
    if cls not in _classes:
        _classes[cls] = type(f"FSDP{cls.__name__}", (FSDPModule, cls), {"__deepcopy__": _refused})
    module.__class__ = _classes[cls]
    module._unit = unit


def _refused(self: Any, memo: Any) -> Any:
    raise AssertionError("FSDP does not support deepcopy. Please use state dict for serialization.")


def register_fsdp_forward_method(module: Module, method_name: str) -> None:
    """Let another method than forward gather the parameters, too."""
    if not isinstance(module, FSDPModule):
        return
    method, unit = getattr(module, method_name), module._unit

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        changed = unit.before_forward(args, kwargs)
        args, kwargs = changed or (args, kwargs)
        return unit.after_forward(method(*args, **kwargs))

    setattr(module, method_name, wrapped)


@region
def whole(module: Module, writeback: bool = True) -> Iterator[None]:
    """All parameters are there inside; what is written to them stays."""
    units = [m._unit for m in module.modules() if isinstance(m, FSDPModule)]
    for unit in units:
        unit.gather()
    try:
        yield
    finally:
        _take_apart(units, writeback)


def _take_apart(units: list[Any], writeback: bool) -> None:
    with no_grad():
        for unit in units:
            for p in unit.parameters if writeback else ():
                p.keep_rows()
            unit.release(keep_small=False)

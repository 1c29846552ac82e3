"""The tensor that a function sees under vmap: a sample's shape, and behind it the whole batch.

A batched tensor has no bytes of its own: whoever asks for them is refused. An op's call runs by its
batching rule (_ops/batching/call.py).
What is recorded is recorded of the tensors behind, so there is one graph, and no op pays for vmap.
"""
# The methods that say less than a tensor's raise instead.
# mypy: disable-error-code="override,assignment,misc"

from __future__ import annotations

from typing import Any, NoReturn

from skimp._engine.autograd import modes
from skimp._engine.dispatch.overrides import disabled
from skimp._engine.dispatch.transforms import BATCHING, TRANSFORMS, Batches
from skimp._engine.interpreter import enters_uninterrupted
from skimp._engine.memory import layout as layouts
from skimp._engine.memory.layout import Layout, contiguous_strides
from skimp._engine.tensor import formats
from skimp._engine.tensor.tensor import Tensor

_ITEM = (
    "vmap: It looks like you're calling .item() on a Tensor. We don't support vmap over calling "
    ".item() on a Tensor, please try to rewrite what you're doing with other operations. If error "
    "is occurring somewhere inside PyTorch internals, please file a bug report."
)
_TRUTH = (
    "vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow. We "
    "don't support that yet, please file an issue at https://github.com/pytorch/pytorch/issues ."
)
_BYTES = "Cannot access data pointer of Tensor that doesn't have storage"
_REQUIRES = (
    "You are attempting to call Tensor.{} (or perhaps using torch.autograd.functional.* APIs) "
    "inside of a function being transformed by a functorch transform. This is unsupported, please "
    "attempt to use the functorch transforms (e.g. grad, vjp, jacrev, jacfwd, hessian) or call "
    "requires_grad_() outside of a function being transformed instead."
)


class Level:
    """One vmap that is running: how many samples it has, and how random ops draw."""

    __slots__ = ("depth", "randomness", "size")

    def __init__(self, size: int, randomness: str) -> None:
        self.size = size
        self.randomness = randomness
        self.depth = len(modes.state.vmaps) + 1  # 1 for the outermost

    def __enter__(self) -> Level:
        modes.state.vmaps = (*modes.state.vmaps, self)
        return self

    @enters_uninterrupted
    def __exit__(self, *_: object) -> None:
        modes.state.vmaps = modes.state.vmaps[: self.depth - 1]

    def draw(self, name: str, f: Any, given: dict[str, Any]) -> Any:
        """A call of a function that draws numbers, inside."""
        return _batches().draw(self, name, f, given)


def _batches() -> Batches:
    found: Any = TRANSFORMS[BATCHING]
    return found  # type: ignore[no-any-return]


class outside:  # noqa: N801  (a region)
    """Inside, the vmap `level` and those within it are not running: its rules work there."""

    __slots__ = ("_before", "_level")

    def __init__(self, level: Level) -> None:
        self._level = level

    def __enter__(self) -> None:
        self._before = modes.state.vmaps
        modes.state.vmaps = self._before[: self._level.depth - 1]

    @enters_uninterrupted
    def __exit__(self, *_: object) -> None:
        modes.state.vmaps = self._before


def _refuse(text: str) -> NoReturn:
    raise RuntimeError(text)


class Batched(Tensor):
    """A sample of `_held`, whose first dimension is the batch of the vmap `_level`."""

    _hollow = True
    _held: Tensor
    _level: Level
    __torch_function__ = classmethod(disabled)

    # -- code that knows one tensor at a time stops here ------------------------------------------

    def _skimp_layout_of(self) -> NoReturn:
        raise RuntimeError(_BYTES)

    _skimp_array = _skimp_writable = _skimp_bump = _skimp_layout_of

    @property
    def _storage(self) -> NoReturn:
        raise RuntimeError(_BYTES)

    @property
    def _rg(self) -> NoReturn:
        raise RuntimeError("a tensor under vmap records nothing itself")

    @_rg.setter
    def _rg(self, value: bool) -> NoReturn:
        raise RuntimeError("a tensor under vmap records nothing itself")

    # -- what it answers itself -------------------------------------------------------------------

    @property
    def requires_grad(self) -> bool:
        return self._held.requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> NoReturn:
        _refuse(_REQUIRES.format("requires_grad_()"))

    def requires_grad_(self, requires_grad: bool = True) -> NoReturn:
        _refuse(_REQUIRES.format("requires_grad_()"))

    def retain_grad(self) -> NoReturn:
        _refuse(_REQUIRES.format("retain_grad()"))

    @property
    def is_leaf(self) -> bool:
        return self._held.is_leaf

    @property
    def grad_fn(self) -> Any:
        return self._held.grad_fn

    @property
    def grad(self) -> None:
        return None

    @property
    def _skimp_version(self) -> int:
        return self._held._skimp_version

    def detach(self) -> Tensor:
        return wrap(self._held.detach(), self._level)

    def detach_(self) -> Tensor:
        self._held.detach_()
        return self

    @property
    def data(self) -> Tensor:
        return wrap(self._held.data, self._level)

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Whether a sample is."""
        if memory_format not in (None, formats.contiguous_format):
            return False
        shape = tuple(self.shape)
        found: bool = layouts.is_contiguous(Layout(shape, tuple(self.stride()), 0))
        return found

    def stride(self, dim: int | None = None) -> Any:
        strides = self._held.stride()[1:]
        return strides if dim is None else strides[dim]

    def storage_offset(self) -> int:
        return self._held.storage_offset()

    def _is_view(self) -> bool:
        return self._held._is_view()

    def is_inference(self) -> bool:
        return self._held.is_inference()

    def is_conj(self) -> bool:
        return self._held.is_conj()

    def is_neg(self) -> bool:
        return self._held.is_neg()

    def new_zeros(self, *size: Any, **words: Any) -> Tensor:
        return self._new("new_zeros", size, words)

    def new_ones(self, *size: Any, **words: Any) -> Tensor:
        return self._new("new_ones", size, words)

    def new_empty(self, *size: Any, **words: Any) -> Tensor:
        return self._new("new_empty", size, words)

    def new_full(self, size: Any, fill_value: Any, **words: Any) -> Tensor:
        size = (size,) if isinstance(size, int) else size
        made = self._held.new_full((self._level.size, *size), fill_value, **words)
        return wrap(made, self._level)

    def _new(self, name: str, size: Any, words: dict[str, Any]) -> Tensor:
        """New tensors have the batch too, so that samples can be written into them."""
        if "size" in words:
            size = (words.pop("size"),)
        if len(size) == 1 and isinstance(size[0], (tuple, list)):
            size = size[0]
        return wrap(getattr(self._held, name)((self._level.size, *size), **words), self._level)

    def item(self) -> NoReturn:
        _refuse(_ITEM)

    __float__ = __int__ = __index__ = __complex__ = item

    def __contains__(self, element: Any) -> NoReturn:
        _refuse(_ITEM)

    def __bool__(self) -> NoReturn:  # noqa: PLE0304  (it raises)
        _refuse(_TRUTH)

    def is_nonzero(self) -> NoReturn:
        _refuse(_TRUTH)

    def tolist(self) -> NoReturn:
        _refuse(_BYTES)

    def numpy(self, *, force: bool = False) -> NoReturn:
        _refuse(_BYTES)

    def data_ptr(self) -> NoReturn:
        _refuse(_BYTES)

    untyped_storage = storage = data_ptr

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        _refuse(_BYTES)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        inner = "\n".join([f"    {line}" for line in repr(self._held).splitlines()])
        return f"BatchedTensor(lvl={self._level.depth}, bdim=0, value=\n{inner}\n)"

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        _refuse("a tensor under vmap can't be pickled or copied; return it from the function")

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        return wrap(self._held.clone(), self._level)


def wrap(held: Tensor, level: Level) -> Batched:
    """A sample of `held`, whose first dimension is the batch."""
    new = object.__new__(Batched)  # `blank`, written out, but for `_rg`
    new._np = new._base = new._skimp_node = new._grad = None
    new._skimp_accumulate = new._skimp_views = new._skimp_creation = None
    new._skimp_turned = new._skimp_marked = False
    new._skimp_index = 0
    new._skimp_stale = -1
    new._held = held
    new._level = level
    new._dtype = held._dtype
    new._skimp_layout = sample_layout(held)
    return new


def sample_layout(held: Tensor) -> Layout:
    a = held._np
    shape = (a.shape if a is not None else held._skimp_layout.shape)[1:]  # type: ignore[union-attr]
    return Layout(shape, contiguous_strides(shape), 0)


def is_of(t: Any, level: Level) -> bool:
    """Whether `t` has a batch dimension of this very vmap."""
    return type(t) is Batched and t._level is level


# -- batch dimensions as dimensions ---------------------------------------------------------------


def lowered(t: Tensor, depth: int) -> Tensor:
    """`t` with the batches of the `depth` outermost vmaps as its first dimensions, expanded where
    it has none; batches of inner vmaps stay hidden.
    """
    if not depth:
        return t
    if type(t) is Batched and t._level.depth > depth:
        held = lowered(t._held, depth)
        return wrap(held.movedim(depth, 0), t._level)
    level = modes.state.vmaps[depth - 1]
    if isinstance(t, Batched) and t._level is level:
        return lowered(t._held, depth - 1)
    inner = lowered(t, depth - 1)
    lead = depth - 1
    wide = inner.unsqueeze(lead)
    shape = tuple(wide.shape)
    return wide.expand(*shape[:lead], level.size, *shape[lead + 1 :])


def lifted(t: Tensor, depth: int) -> Tensor:
    """The inverse: the first `depth` dimensions of `t` are batches of the outermost vmaps."""
    if not depth:
        return t
    if type(t) is Batched and t._level.depth > depth:
        return wrap(lifted(t._held.movedim(0, depth), depth), t._level)
    for level in modes.state.vmaps[:depth]:
        t = wrap(t, level)
    return t

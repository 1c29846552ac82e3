"""Tensor: a Storage seen through a Layout as elements of a dtype, with autograd's metadata.

Everything that a tensor can do is attached from the op rows (`_engine/dispatch/forms.py`), so the
class itself is small: what a tensor is, how it is made, and how its elements are reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from skimp._engine.memory import storage as storages
from skimp._engine.memory.caching import POOLED
from skimp._engine.memory.layout import Layout, contiguous, contiguous_strides, numel
from skimp._engine.memory.ledger import host
from skimp._engine.memory.spans import over
from skimp._engine.memory.storage import Storage, sequence
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.devices import CPU, device
from skimp._engine.tensor.fields import DEFAULTS, Held, Shown, fill, show_first, slot
from skimp._engine.tensor.inference import marks
from skimp._engine.tensor.instances import share_names
from skimp._engine.tensor.size import Size
from skimp._kernels import compiled, shaping, sharing
from skimp.config import config

if TYPE_CHECKING:
    from skimp.autograd.graph import Node

Array = np.ndarray[Any, Any]


_ndarray = np.ndarray
_asarray = np.asarray
_new = object.__new__
_array = slot("_np")
_tuple = tuple.__new__  # of sizes that are ints: `Size` looks at each; a NamedTuple's is Python's


class _General:
    """`_np` of a class off the fast paths: always None. What is set is kept until it is asked for,
    and gives the layout: a tensor may be made one of the class at any time (`t.__class__ = cls`).
    """

    def __get__(self, t: Tensor | None, cls: type[Tensor]) -> None:
        if t is not None and (array := _array.__get__(t)) is not None:
            if t._skimp_layout is None:
                t._skimp_layout = _layout_of(array, t._storage)
            _array.__set__(t, None)

    def __set__(self, t: Tensor, array: Array | None) -> None:
        _array.__set__(t, array)


def _layout_of(a: Array, storage: Storage) -> Layout:
    """Shape, strides and offset, in elements, of an array of a storage's bytes."""
    # NumPy leaves strides of size-1 dims as they come
    if a is storage.block and a.flags.c_contiguous:
        return contiguous(a.shape)
    size = a.itemsize
    offset = 0
    if a.size and storage.nbytes != size:  # else there is but one element
        block = storage.flat() if storage.block is None else storage.block
        first, begin = shaping.addresses(a, block)
        offset = (first - begin) // size
    return _tuple(Layout, (a.shape, tuple([s // size for s in a.strides]), offset))


class VersionCounter:
    """A version of its own, for a tensor that shares bytes but not history (`x.data`)."""

    version: int = 0


class Tensor(Held):
    """A multi-dimensional array of one dtype: a view of a Storage that other tensors may share."""

    __dict__ = Shown()

    # The elements: an ndarray while the tensor is small, resident and plain; None sends an op
    # the general way.
    _np: Array | None
    _skimp_layout: Layout | None  # None: the layout of `_np`
    # `_np` has several dims and is not row-major: beside another array NumPy would lay out the
    # result in its own way
    _skimp_turned: bool
    _storage: Storage
    _dtype: dtypes.dtype

    # takes part in differentiation: a leaf that requires grad, or a result of one
    _rg: bool
    _skimp_node: Node | None  # grad_fn; None for a leaf
    _skimp_index: int  # which of the node's outputs this is
    _skimp_accumulate: Any  # the leaf's node in the graph, made when first needed
    _grad: Tensor | None
    _base: Tensor | None  # the tensor that this is a differentiable view of
    _skimp_views: Any  # weak references to the views that require no grad
    _skimp_creation: str | None  # how a view was made, if in-place ops on it must be refused
    # version of the base's history that `_skimp_node` was made from (views only)
    _skimp_stale: int
    # what few tensors have, by `mark` and `mark_creation` only: then `_skimp_marked` is True, and
    # no fast path looks further
    _skimp_marked: bool
    _skimp_counter: VersionCounter | None = None  # None: the storage's version
    _conj: bool = False  # the bytes hold the conjugate
    _skimp_neg: bool = False  # the bytes hold the negative
    _skimp_inference: bool = False

    _hollow: bool = False  # a subclass without bytes of its own: sparse, under vmap, or on "meta"
    _skimp_sparse: bool = False  # the first of these (_ops/sparse/tensor.py)
    _skimp_meta: Any = (
        None  # the class of tensors on the device "meta" (_engine/tensor/meta.py), if one
    )
    _skimp_inherits: bool = False  # a view that requires grad because its base does
    _skimp_output: int = 0  # which of several views of one call this is
    _skimp_cut: Any = None  # where the chain of gradients was cut
    _skimp_hooks: Any = None
    _skimp_post_hooks: Any = None
    _skimp_retains: bool = False

    _skimp_watched: bool = False  # somebody is asked about every attribute (dispatch/attributes.py)
    _skimp_on_fast_path: bool = True  # small ones of this class take the fast paths

    def __init_subclass__(cls, **words: Any) -> None:
        super().__init_subclass__(**words)
        if "_skimp_on_fast_path" not in cls.__dict__:
            cls._skimp_on_fast_path = False
        if not (cls._skimp_on_fast_path or cls._hollow):
            cls._np = _General()  # type: ignore[assignment]
        show_first(cls)
        cls._skimp_begin_class()

    @classmethod
    def _skimp_begin_class(cls) -> None:
        """What dispatch does with a new class (_engine/dispatch/overrides.py)."""

    __array_priority__ = 1000  # NumPy's operators leave mixed expressions to ours

    # -- what it is -------------------------------------------------------------------------------

    @property
    def dtype(self) -> dtypes.dtype:
        return self._dtype

    @property
    def shape(self) -> Size:
        a = self._np
        return _tuple(Size, a.shape if a is not None else self._skimp_layout.shape)  # type: ignore[union-attr]

    @property
    def device(self) -> device:
        return CPU

    def _skimp_layout_of(self) -> Layout:
        """Shape, strides and offset, in elements."""
        layout = self._skimp_layout
        if layout is None:
            a = self._np
            if a is None:  # of a class off the fast paths, which knows its layout now
                assert self._skimp_layout is not None
                return self._skimp_layout
            layout = _layout_of(a, self._storage)
            self._skimp_layout = layout
        return layout

    def _skimp_array(self) -> Array:
        """The elements as an ndarray over the storage's bytes; materializes. For reading (see
        `writable`).
        """
        a = self._np
        if a is not None:
            return a
        layout, s = self._skimp_layout, self._storage
        assert layout is not None
        flat = s._flat  # `Storage.view`, written out
        a = over(s.flat() if flat is None else flat, layout, self._dtype.np)
        if self._conj:
            a = np.conjugate(a)
        if self._skimp_neg:
            a = np.negative(a)
        if (
            a.size < config.small_below
            and self._skimp_on_fast_path
            and not (self._conj or self._skimp_neg or self._storage.loose)
        ):
            self._np = a
            self._skimp_turned = not a.flags.c_contiguous and a.ndim > 1
        return a

    def _skimp_writable(self) -> Array:
        """The elements as an ndarray to write to: whoever is deferred and reads the old ones has
        materialized.
        """
        s = self._storage
        if s.readers is not None or s.deferred is not None or type(s) is not Storage:
            s.will_write()
        counter = self._skimp_counter
        if counter is None:
            s.version += 1
        else:  # `_skimp_bump`, written out
            counter.version += 1
            s.unseen = next(sequence)
        a = self._np
        if a is not None:
            return a
        assert self._skimp_layout is not None
        return s.view(self._skimp_layout, self._dtype.np)

    def _skimp_written(self, array: Array) -> None:
        """After `_skimp_writable()` was written to: where the bytes hold the conjugate or the
        negative, make them so.
        """
        if self._conj:
            np.conjugate(array, out=array)
        if self._skimp_neg:
            np.multiply(array, -1, out=array)

    def _skimp_bump(self) -> None:
        """One more in-place write."""
        counter = self._skimp_counter
        if counter is not None:
            counter.version += 1
            self._storage.unseen = next(sequence)
        else:
            self._storage.version += 1

    @property
    def _skimp_version(self) -> int:
        return self._storage.version if self._skimp_counter is None else self._skimp_counter.version

    @property
    def _version(self) -> int:
        """How often its bytes were written to.

        Raises: RuntimeError for inference tensors, as PyTorch's.
        """
        if self._skimp_inference:
            raise RuntimeError("Inference tensors do not track version counter.")
        return self._skimp_version


def mark(t: Tensor, **rare: Any) -> None:
    """Give `t` values of what few tensors have: `_skimp_counter`, `_conj`, `_skimp_neg`,
    `_skimp_inference`.
    """
    for name, value in rare.items():
        setattr(t, name, value)
    t._skimp_marked = True


def mark_bytes(new: Tensor, t: Tensor) -> None:
    """Give `new`, on the bytes of `t`, what says how to read them and who counts their versions."""
    if t._skimp_meta is not None:
        new.__class__ = t._skimp_meta
    if t._skimp_counter is not None or t._conj or t._skimp_neg:
        mark(new, _skimp_counter=t._skimp_counter, _conj=t._conj, _skimp_neg=t._skimp_neg)


def mark_creation(view: Tensor, creation: str | None) -> None:
    """`mark` of `_skimp_creation`, without a loop: backward, which records nothing, makes many."""
    view._skimp_creation = creation
    view._skimp_marked = True


def mark_version(t: Tensor, counter: VersionCounter) -> None:
    """`mark` of `_skimp_counter`, without a loop: programs ask for `x.data` often."""
    t._skimp_counter = counter
    t._skimp_marked = True


def writable(tensors: Sequence[Tensor]) -> list[Array]:
    """`_skimp_writable` of several, of which most are small and nobody's who waits."""
    found = []
    for t in tensors:
        a, s = t._np, t._storage
        if (
            a is not None
            and s.readers is None
            and s.deferred is None
            and type(s) is Storage
            and t._skimp_counter is None
        ):
            s.version += 1
            found.append(a)
        else:
            found.append(t._skimp_writable())
    return found


# -- making tensors -------------------------------------------------------------------------------


def fresh(array: Any, dtype: dtypes.dtype) -> Tensor:
    """A tensor of an op's own result, which nobody else holds (a NumPy scalar stands for 0-d)."""
    if type(array) is not _ndarray:
        array = _asarray(array)
    n = array.nbytes
    if n >= host.kept_below or not config.small_below:
        return adopt(array, dtype)
    s = _new(Storage)  # `storage.bare`, written out
    s.deferred = s.readers = s.size = s._flat = None
    s.version = 0
    s.saved = False
    s.block = array
    host.made = host.made + 1
    host.total = total = host.total + n
    s.nbytes = n
    if total - host.freed > host.ceiling:
        host.rise(n, s)
    t = _new(Tensor)  # `blank`, written out
    t._skimp_layout = t._base = t._skimp_node = t._grad = None
    t._skimp_accumulate = t._skimp_views = t._skimp_creation = None
    t._rg = t._skimp_turned = t._skimp_marked = False
    t._skimp_index = 0
    t._skimp_stale = -1
    t._np = array
    t._storage = s
    t._dtype = dtype
    if marks.anywhere and marks.of_thread.here:  # inference mode, where all are marked
        t._skimp_inference = t._skimp_marked = True
    return t


def blank(cls: type[Tensor]) -> Any:
    """A tensor that has what every one has, but for its storage and dtype, which the caller sets
    (and no ndarray).
    """
    t = _new(cls)
    if cls._hollow:
        fill(t)
        return t
    t._np = t._skimp_layout = t._base = t._skimp_node = t._grad = None
    t._skimp_accumulate = t._skimp_views = t._skimp_creation = None
    t._rg = t._skimp_turned = t._skimp_marked = False
    t._skimp_index = 0
    t._skimp_stale = -1
    return t


def as_it_lies(array: Array, dtype: dtypes.dtype) -> Tensor:
    """`fresh`, of an array that may lie in another order than row-major."""
    t = fresh(array, dtype)
    if not shaping.is_dense(array):
        t._skimp_turned = True
    return t


def adopt(array: Array, dtype: dtypes.dtype) -> Tensor:
    """A tensor of any array that nobody else holds, of any size and dense layout."""
    base = None if array.flags.owndata else array.base
    if base is not None and base.nbytes - array.nbytes not in (0, sharing.LINE):  # `sharing.made`
        array = array.copy(order="K")
    shape = array.shape
    if array.size == 0 or (array.flags.c_contiguous and 1 not in shape):
        layout = contiguous(shape)
    else:
        layout = Layout(shape, tuple([s // array.itemsize for s in array.strides]), 0)
    return wrap(storages.owned(array), layout, dtype)


def wrap(
    s: Storage, layout: Layout | None, dtype: dtypes.dtype, cls: type[Tensor] = Tensor
) -> Tensor:
    """A tensor on storage `s`; `layout` None: the caller sets `_np`, which has it."""
    t = _new(cls)
    if cls._hollow:
        fill(t)
    else:  # `blank`, written out
        t._np = t._base = t._skimp_node = t._grad = None
        t._skimp_accumulate = t._skimp_views = t._skimp_creation = None
        t._rg = t._skimp_turned = t._skimp_marked = False
        t._skimp_index = 0
        t._skimp_stale = -1
    t._storage = s
    t._skimp_layout = layout
    t._dtype = dtype
    if marks.anywhere and marks.of_thread.here:  # inference mode, where all are marked
        t._skimp_inference = t._skimp_marked = True
    return t


def empty(
    shape: tuple[int, ...], dtype: dtypes.dtype, strides: tuple[int, ...] | None = None
) -> Tensor:
    """A tensor of uninitialised elements, dense; `strides` default to row-major."""
    row_major = contiguous_strides(shape)
    nbytes = numel(shape) * dtype.itemsize
    if nbytes < POOLED and strides in (None, row_major):
        return fresh(np.empty(shape, dtype.np), dtype)
    layout = _tuple(Layout, (shape, row_major if strides is None else strides, 0))
    return wrap(storages.empty(nbytes), layout, dtype)


def alias(t: Tensor, layout: Layout) -> Tensor:
    """Another tensor on `t`'s storage and version, in no relation to its history."""
    new = _new(Tensor)  # `blank`, written out: each view of what is large is made here
    new._np = new._base = new._skimp_node = new._grad = None
    new._skimp_accumulate = new._skimp_views = new._skimp_creation = None
    new._rg = new._skimp_turned = new._skimp_marked = False
    new._skimp_index = 0
    new._skimp_stale = -1
    new._storage = t._storage
    new._skimp_layout = layout
    new._dtype = t._dtype
    if marks.anywhere and (t._skimp_inference or marks.of_thread.here):
        new._skimp_inference = t._skimp_inference  # a view is what its base is
        new._skimp_marked = True
    if t._skimp_marked:
        mark_bytes(new, t)
    return new


def ghost(t: Tensor, cls: type[Tensor] = Tensor) -> Tensor:
    """An alias of `t` without history."""
    new = _new(cls)
    if cls._hollow:
        fill(new)
    else:  # `blank`, written out
        new._np = new._base = new._skimp_node = new._grad = None
        new._skimp_accumulate = new._skimp_views = new._skimp_creation = None
        new._rg = new._skimp_turned = new._skimp_marked = False
        new._skimp_index = 0
        new._skimp_stale = -1
    new._np = t._np
    new._skimp_layout = t._skimp_layout
    new._storage = t._storage
    new._dtype = t._dtype
    if t._skimp_turned:
        new._skimp_turned = True
    if t._skimp_marked:
        mark_bytes(new, t)
    return new


def on_array(t: Tensor, a: Array) -> Tensor:
    """An alias of a small tensor that shows `a`, a view of its ndarray, in no relation to its
    history.
    """
    new = _new(Tensor)  # `blank`, written out: each view of what is small is made here
    new._skimp_layout = new._base = new._skimp_node = new._grad = None
    new._skimp_accumulate = new._skimp_views = new._skimp_creation = None
    new._rg = new._skimp_turned = new._skimp_marked = False
    new._skimp_index = 0
    new._skimp_stale = -1
    new._np = a
    new._storage = t._storage
    new._dtype = t._dtype
    if a.ndim > 1 and not a.flags.c_contiguous:
        new._skimp_turned = True
    if t._skimp_marked and t._skimp_counter is not None:  # else its bytes are as they are
        mark_version(new, t._skimp_counter)
    return new


# -- the same in C --------------------------------------------------------------------------------

# Tensors of these classes take the fast paths, whose results are plain tensors; `nn.Parameter`
# joins. Other classes may want to be asked, or results of their own class.
ORDINARY: set[type[Any]] = {Tensor}
share_names(
    lambda: blank(Tensor), "_skimp_cut", "_skimp_inherits", "_skimp_output", "_skimp_counter"
)


_MAKERS: Final = fresh, blank, wrap, alias, ghost, on_array, storages.bare, Storage.__del__
IN_PYTHON: Final[dict[str, Any]] = {f.__name__: f for f in _MAKERS}
IN_C: Final[bool] = compiled.loops() is not None


def _instances() -> None:
    """Have C make tensors and storages, where `skimp compile` was run."""
    found = compiled.loops().instances({
        "Tensor": Tensor, "Storage": Storage, "tensors": DEFAULTS, "storages": storages.DEFAULTS,
        "general": IN_PYTHON, "adopt": adopt, "ordinary": ORDINARY,
        "host": host, "config": config, "marks": marks,
    })  # fmt: skip
    Storage.__del__ = found.pop("__del__")  # type: ignore[method-assign]
    storages.bare = found.pop("bare")
    globals().update(found)


if IN_C:
    _instances()


_TURNED: Final = "not a.flags.c_contiguous and a.ndim > 1"  # of a view's array `a`


def aliasing(
    call: str, new: str, t: str, array: str, layout: str = "None", turned: str = _TURNED
) -> list[str]:
    """The lines of a text that make an alias of the small tensor `t` on `array` under the name
    `new`: by `call`, or, where that would be a function of Python's, `on_array` written out.
    """
    if IN_C:
        return [f"{new} = {call}"]
    nothing = " = ".join([f"{new}.{name}" for name, value in DEFAULTS.items() if value is None])
    return [
        f"{new} = make(Tensor)",
        f"{nothing} = None",
        f"{new}._skimp_layout = {layout}",
        f"{new}._rg = {new}._skimp_marked = False",
        f"{new}._skimp_index = 0",
        f"{new}._skimp_stale = -1",
        f"{new}._np = {array}",
        f"{new}._storage = {t}._storage",
        f"{new}._dtype = {t}._dtype",
        f"{new}._skimp_turned = {turned}",
        f"if {t}._skimp_marked and {t}._skimp_counter is not None:",
        f"    mark_version({new}, {t}._skimp_counter)",
    ]

"""oneDNN, where it is installed: what skimp asks it for, by the names of its C library.

It is the library that PyTorch has its convolutions, products and GELU from on a CPU. Skimp runs
without it, and leaves it alone with `SKIMP_ONEDNN=never`, for a whole process: what is made again
later has the same bits.
Each primitive runs in scratch memory that it is given, on the thread that asks for it, and work is
shared by our own threads; or on threads of its own (OpenMP's), which are awake sooner, where bits
don't depend on their number.
"""

from __future__ import annotations

import ctypes
import os
import site
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

from skimp._kernels import foreign, teams
from skimp._kernels.locks import reentrant
from skimp._kernels.threads import Call
from skimp.config import choice

Ints = tuple[int, ...]
After = tuple[int, Any]  # what is done with a result: which, and a layout or numbers

MAJOR: Final = 3  # of the versions whose interface this is
_NAME: Final = f"libdnnl.so.{MAJOR}"
_RUNTIMES: Final = (1, 2)  # how it runs threads: not at all, or by OpenMP
_CPU: Final = 1
_IN_ORDER: Final = 1
_FLOAT: Final = 3
_ANY: Final = 1  # the layout that a primitive likes best
_DIRECT: Final = 1  # the algorithm of convolutions
GELU: Final = 0x31  # functions of one number
GELU_TANH: Final = 0x2B
_TRAINING: Final = 64
_INFERENCE: Final = 96
_AVERAGE: Final = 0x2FF
_SCALED: Final = 2
_SHIFTED: Final = 4
_SOFTMAX: Final = 0x30000
_ALL_GRADIENTS: Final = 128
_ONE_GRADIENT: Final = 160
_USER: Final = 1  # scratch memory is given by who calls
_MOST_DIMS: Final = 12
_SCRATCHPAD: Final = 80  # arguments of a primitive, by DNNL_ARG_...
FROM: Final = 1
BESIDE: Final = 2  # what each number is multiplied by
TO: Final = 17
WEIGHTS: Final = 33
GIVEN: Final = 145  # the gradient of a result, and of what it was made from
ASKED: Final = 129
NORMALIZED: Final = (FROM, GIVEN, ASKED)
STATISTICS: Final = (49, 50)  # mean and variance
SCALE: Final = 51
SHIFT: Final = 52
AFFINE: Final = (255, 256)  # the gradients of scale and shift
THEN: Final = 1 << 15  # times 1, 2, ...: of what is done with a result
ADDED: Final = (THEN + BESIDE, 2 * THEN + BESIDE)  # what is added to it first, and then
TOTAL: Final = 0  # what is done with a result: what was in its place is added, or a number beside
ADD: Final = 0x1FFF0
MULTIPLY: Final = 0x1FFF1
SUBTRACT: Final = 0x1FFF5
HELD: Final = 0x2E  # or it is held between two numbers
TANH: Final = 0x21
_SCRATCHPAD_MD: Final = 136
_WEIGHTS_MD: Final = 131
_NAME_OF: Final = 8  # the implementation's
# Code for gradients by larger steps: oneDNN's choice, with memory for each thread, and its next.
_SLOWER: Final = b"brgconv_strided"
_BETTER: Final = b"jit"
FEW: Final = b"x64:gemm"  # code by general products, best for few channels
REFERENCE: Final = b"ref"  # in the name of one that goes one by one
_Pointer = ctypes.c_void_p
_Dims = ctypes.c_int64 * _MOST_DIMS


class _Version(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
        ("patch", ctypes.c_int),
        ("hash", ctypes.c_char_p),
        ("cpu_runtime", ctypes.c_uint),
        ("gpu_runtime", ctypes.c_uint),
    )


class _Argument(ctypes.Structure):
    """A memory object and what it is to a primitive."""

    _fields_ = (("number", ctypes.c_int), ("memory", _Pointer))


class Unsupported(Exception):
    """oneDNN has no such primitive, or takes no such layout."""


_chosen: Final = choice("SKIMP_ONEDNN", os.environ)
_why_not: Final[list[str]] = []
_making: Final = reentrant()
_forked: Final[list[None]] = []  # an item in a child of a process that had loaded it


@cache
def library() -> ctypes.CDLL | None:
    """The C library beside this Python (where its wheel and conda put it), the user's own
    (`pip install --user`) or the system's; None where there is none, or one of another version.

    It is loaded when a convolution first asks: 15 MiB.
    """
    if _chosen == "never" or not sys.platform.startswith("linux"):
        return None
    for place in _places():
        try:
            with teams.patience():
                found = ctypes.CDLL(place)
        except OSError as error:  # not there, or what it needs itself is not
            _why_not.append(str(error))
            continue
        if _suits(found):
            return _declared(found)
        _why_not.append(f"{place} is of another version, or runs threads in another way")
    return None


def _places() -> list[str]:
    """Where the library may be, the nearest first; by its name the system looks for it."""
    bases = [sys.prefix, site.getuserbase()] if site.ENABLE_USER_SITE else [sys.prefix]
    files = [os.path.join(base, "lib", _NAME) for base in bases]
    return [*[file for file in files if os.path.exists(file)], _NAME]


def _suits(found: ctypes.CDLL) -> bool:
    found.dnnl_version.restype = ctypes.POINTER(_Version)
    version = found.dnnl_version().contents
    return version.major == MAJOR and version.cpu_runtime in _RUNTIMES


def _declared(found: ctypes.CDLL) -> ctypes.CDLL:
    """The library with the types of what is called often or returns no status."""
    found.dnnl_primitive_desc_query_md.restype = _Pointer
    found.dnnl_primitive_desc_query_md.argtypes = [_Pointer, ctypes.c_int, ctypes.c_int]
    found.dnnl_primitive_desc_next_impl.argtypes = [_Pointer]
    found.dnnl_memory_desc_get_size.restype = ctypes.c_size_t
    found.dnnl_memory_desc_get_size.argtypes = [_Pointer]
    found.dnnl_memory_desc_equal.argtypes = [_Pointer, _Pointer]
    found.dnnl_memory_set_data_handle.argtypes = [_Pointer, _Pointer]
    found.dnnl_primitive_execute.argtypes = [_Pointer, _Pointer, ctypes.c_int, _Pointer]
    found.dnnl_set_primitive_cache_capacity(0)  # who asks keeps them, and lets them go
    return found


def state() -> str:
    """Its version, or why it is not used."""
    found = library()
    if found is not None:
        version = found.dnnl_version().contents
        return f"oneDNN {version.major}.{version.minor}.{version.patch}"
    return f"no oneDNN ({_why_not[0] if _why_not else 'SKIMP_ONEDNN=never, or not Linux'})"


@contextmanager
def team(threads: int) -> Iterator[None]:
    """Inside, primitives are made for so many threads, and run on them: one is who asks."""
    found = library()
    put = put_threads()
    if found is None or put is None:
        yield
        return
    before = found.omp_get_max_threads()
    use_threads(threads)
    try:
        yield
    finally:
        put(before)


def use_threads(threads: int) -> None:
    """Let what this thread asks oneDNN for run on so many; on one in a forked child."""
    if threads > 1 and not threads == 2 == teams.told.size:  # two are too few to let one go
        teams.told.size = 0
    put = put_threads()
    if put is not None:
        put(1 if _forked else threads)


@cache
def put_threads() -> Callable[[int], object] | None:
    return getattr(library(), "omp_set_num_threads", None)


def _found() -> ctypes.CDLL:
    found = library()
    assert found is not None
    return found


class Handle:
    """Something that oneDNN made, destroyed after this object."""

    __slots__ = ("__weakref__", "value")

    def __init__(self, kind: str, make: str, *args: Any) -> None:
        self.value = _Pointer()
        if getattr(_found(), make)(ctypes.byref(self.value), *args):
            raise Unsupported(make)
        foreign.destroy_after(self, getattr(_found(), f"dnnl_{kind}_destroy"), self.value)


def _once(make: Callable[[], Handle]) -> Callable[[], Handle]:
    """What is made once. Two threads that ask first at once would make two otherwise, and the one
    that is not kept would go while it is used."""
    kept = cache(make)

    def get() -> Handle:
        with _making:
            return kept()

    return get


@_once
def _engine() -> Handle:
    return Handle("engine", "dnnl_engine_create", _CPU, ctypes.c_size_t(0))


def stream() -> Handle:
    """Where primitives run; one serves one thread at a time."""
    return Handle("stream", "dnnl_stream_create", _engine().value, _IN_ORDER)


def _dims(sizes: Sequence[int]) -> Any:
    return _Dims(*sizes)


def layout(shape: Ints, strides: Ints | None = None) -> Handle:
    """float32 of a shape, by strides in elements; without them as a primitive likes it."""
    kind, sizes = "memory_desc", _dims(shape)
    if strides is None:
        make = "dnnl_memory_desc_create_with_tag"
        return Handle(kind, make, len(shape), sizes, _FLOAT, _ANY)
    make = "dnnl_memory_desc_create_with_strides"
    return Handle(kind, make, len(shape), sizes, _FLOAT, _dims(strides))


@_once
def _given_scratch() -> Handle:
    """The attribute that scratch memory is given by the caller."""
    made = Handle("primitive_attr", "dnnl_primitive_attr_create")
    _found().dnnl_primitive_attr_set_scratchpad_mode(made.value, _USER)
    return made


class Memory:
    """A layout over an address that is told before each use."""

    __slots__ = ("_handle", "address", "put", "value")

    def __init__(self, descriptor: Any) -> None:
        self.address = 0
        make = "dnnl_memory_create"
        self._handle = Handle("memory", make, descriptor, _engine().value, _Pointer())
        self.value = self._handle.value
        self.put = _found().dnnl_memory_set_data_handle


class Primitive:
    """What oneDNN computes: its description, which knows layouts, its code, and that one's name."""

    __slots__ = ("code", "description", "name", "scratch")

    def __init__(self, make: str, *args: Any, few: bool = False) -> None:
        self.description = Handle("primitive_desc", make, *args)
        code = FEW if few else _BETTER if self._name().startswith(_SLOWER) else b""
        if not self._seek(code):
            self.description = Handle("primitive_desc", make, *args)
        self.name = self._name()
        self.code = Handle("primitive", "dnnl_primitive_create", self.description.value)
        self.scratch = size(self.wants(_SCRATCHPAD_MD))  # bytes

    def _seek(self, code: bytes) -> bool:
        """Go on to the code whose name begins so; whether there is any."""
        while not self._name().startswith(code):
            if _found().dnnl_primitive_desc_next_impl(self.description.value):
                return False
        return True

    def _name(self) -> bytes:
        name = ctypes.c_char_p()
        _found().dnnl_primitive_desc_query(self.description.value, _NAME_OF, 0, ctypes.byref(name))
        return name.value or b""

    def wants(self, query: int) -> Any:
        """The layout of one of its arguments, which lives as long as this."""
        return _Pointer(_found().dnnl_primitive_desc_query_md(self.description.value, query, 0))

    def weights(self) -> Handle:
        """The layout in which it wants its weights."""
        return Handle("memory_desc", "dnnl_memory_desc_clone", self.wants(_WEIGHTS_MD))


class Arguments:
    """A primitive with the memory that it runs on, and scratch memory that is told each time."""

    __slots__ = ("_array", "_code", "_execute", "_kept", "scratch")

    def __init__(self, primitive: Primitive, pairs: Sequence[tuple[int, Memory]]) -> None:
        self.scratch = Memory(primitive.wants(_SCRATCHPAD_MD)) if primitive.scratch else None
        if self.scratch is not None:
            pairs = [*pairs, (_SCRATCHPAD, self.scratch)]
        self._kept = primitive, pairs
        self._code = primitive.code.value
        self._array = (_Argument * len(pairs))(
            *[_Argument(number, memory.value) for number, memory in pairs]
        )
        self._execute = _found().dnnl_primitive_execute

    def call(self, on: Handle) -> Call:
        """What computes, with scratch memory where that was told to be, as a call that is still to
        be made; it returns 0."""
        return self._execute, self._code, on.value, len(self._array), self._array


def size(descriptor: Any) -> int:
    """The bytes of a layout."""
    return int(_found().dnnl_memory_desc_get_size(descriptor))


def equal(a: Any, b: Any) -> bool:
    return bool(_found().dnnl_memory_desc_equal(a, b))


def reorder(source: Any, target: Any) -> Primitive:
    """The copy from one layout to another of the same shape."""
    engine = _engine().value
    return Primitive(
        "dnnl_reorder_primitive_desc_create",
        source, engine, target, engine, _given_scratch().value,
    )  # fmt: skip


def elementwise(function: int, lies: Handle, gradient: bool) -> Primitive:
    """A function of each of the numbers in a row, or what its gradient takes from each."""
    engine, row, given = _engine().value, lies.value, _given_scratch().value
    forward = "dnnl_eltwise_forward_primitive_desc_create"
    zero = ctypes.c_float(0)
    if not gradient:
        return Primitive(forward, engine, _TRAINING, function, row, row, zero, zero, given)
    both = function, row, row
    hint = Handle("primitive_desc", forward, engine, _TRAINING, *both, zero, zero, given)
    make = "dnnl_eltwise_backward_primitive_desc_create"
    return Primitive(make, engine, *both, row, zero, zero, hint.value, given)


def binary(kind: int, numbers: Handle, beside: Handle, then: Sequence[After]) -> Primitive:
    """numbers and what stands beside them, multiplied, say, by a kind, and what is done with the
    result; each rounded by itself.
    """
    make, x = "dnnl_binary_primitive_desc_create", numbers.value
    given = _followed(then)
    return Primitive(make, _engine().value, kind, x, beside.value, x, given.value)


def products(a: Handle, b: Handle, c: Handle, then: Sequence[After]) -> Primitive:
    """c = a @ b for matrices of a batch, one of which may have one for all, and what is done with
    the result."""
    make = "dnnl_matmul_primitive_desc_create"
    given = _followed(then)
    return Primitive(make, _engine().value, a.value, b.value, None, c.value, given.value)


def _followed(then: Sequence[After]) -> Handle:
    """The attribute that all this is done with a result, and that scratch memory is given by the
    caller."""
    found = _found()
    given = Handle("primitive_attr", "dnnl_primitive_attr_create")
    found.dnnl_primitive_attr_set_scratchpad_mode(given.value, _USER)
    after = Handle("post_ops", "dnnl_post_ops_create")
    failed = 0
    for kind, what in then:
        if kind == TOTAL:
            failed |= found.dnnl_post_ops_append_sum(after.value, ctypes.c_float(1), 0, 0)
        elif kind >= ADD:  # of two numbers, as its neighbours are
            failed |= found.dnnl_post_ops_append_binary(after.value, kind, what.value)
        else:
            numbers = [ctypes.c_float(number) for number in what]
            failed |= found.dnnl_post_ops_append_eltwise(after.value, kind, *numbers)
    failed |= found.dnnl_primitive_attr_set_post_ops(given.value, after.value)
    if failed:
        raise Unsupported("dnnl_post_ops")
    return given


def average(planes: Handle, results: Handle, kernel: Ints, stride: Ints) -> Primitive:
    """The averages of windows, none of which reaches outside."""
    none = _dims((0,) * len(kernel))
    along = _dims(stride), _dims(kernel), none, none, none
    make, ends = "dnnl_pooling_forward_primitive_desc_create", (planes.value, results.value)
    given = _given_scratch().value
    return Primitive(make, _engine().value, _INFERENCE, _AVERAGE, *ends, *along, given)


def normalization(matrix: Handle, column: Handle, scaled: bool) -> Primitive:
    """The gradient of a normalization of a matrix's rows, whose mean and variance (with what it
    needs to be no 0) are columns; if it is `scaled`, of its scale and shift too.
    """
    engine, x, given = _engine().value, matrix.value, _given_scratch().value
    rest = column.value, ctypes.c_float(0), _SCALED | _SHIFTED if scaled else 0
    forward = "dnnl_layer_normalization_forward_primitive_desc_create"
    hint = Handle("primitive_desc", forward, engine, _TRAINING, x, x, *rest, given)
    make = "dnnl_layer_normalization_backward_primitive_desc_create"
    kind = _ALL_GRADIENTS if scaled else _ONE_GRADIENT
    return Primitive(make, engine, kind, x, x, x, *rest, hint.value, given)


def softmax_gradient(matrix: Handle) -> Primitive:
    """What the gradient of softmax of a matrix's rows takes from its result."""
    engine, x, given = _engine().value, matrix.value, _given_scratch().value
    forward = "dnnl_softmax_forward_primitive_desc_create"
    hint = Handle("primitive_desc", forward, engine, _TRAINING, _SOFTMAX, x, x, 1, given)
    make = "dnnl_softmax_backward_primitive_desc_create"
    return Primitive(make, engine, _SOFTMAX, x, x, x, 1, hint.value, given)


def convolution(
    face: str, layouts: Sequence[Handle], bias: Handle | None, steps: Sequence[Ints], few: bool
) -> Primitive:
    """One of a convolution's faces: "forward", "adjoint" or "weights". `layouts` of input, weights
    and result; `steps`: strides, dilations less one, padding before and after; the adjoint has
    `few` channels."""
    engine, (x, w, y) = _engine().value, [handle.value for handle in layouts]
    along = [_dims(each) for each in steps]
    last = (*along, _given_scratch().value)
    add = None if bias is None else bias.value
    forward = "dnnl_convolution_forward_primitive_desc_create"
    if face == "forward":
        return Primitive(forward, engine, _TRAINING, _DIRECT, x, w, add, y, *last)
    hint = Handle("primitive_desc", forward, engine, _TRAINING, _DIRECT, x, w, add, y, *last)
    if face == "adjoint":
        make = "dnnl_convolution_backward_data_primitive_desc_create"
        return Primitive(make, engine, _DIRECT, x, w, y, *along, hint.value, last[-1], few=few)
    make = "dnnl_convolution_backward_weights_primitive_desc_create"
    return Primitive(make, engine, _DIRECT, x, w, add, y, *along, hint.value, last[-1])


def _note_fork() -> None:
    if library.cache_info().currsize:
        _forked.append(None)
        teams.disband()


if hasattr(os, "register_at_fork"):  # absent on Windows
    os.register_at_fork(after_in_child=_note_fork)

"""Derivatives as functions of functions: grad, vjp, jvp, jacrev, jacfwd, hessian.

Each makes its inputs differentiable apart from what the caller has recorded, runs the function, and
asks the graph. What comes out stays in the graph only where it depends on something else that
requires grad: an outer transform's inputs, or tensors that the function closes over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skimp._engine.autograd import calls, modes
from skimp._engine.autograd.nodes import shape_of
from skimp._engine.autograd.refresh import edge
from skimp._engine.dispatch.batched import lifted, lowered
from skimp._engine.memory.layout import numel
from skimp._engine.tensor.tensor import Tensor
from skimp.func.vmapping import vmap
from skimp.utils._pytree import TreeSpec, tree_flatten, tree_map, tree_structure, tree_unflatten

Function = Callable[..., Any]
Leaves = list[Tensor]


# -- inputs and outputs ---------------------------------------------------------------------------


def _check_argnums(argnums: Any) -> None:
    if not isinstance(argnums, (int, tuple)):
        raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {type(argnums)}")
    if isinstance(argnums, tuple):
        if not argnums:
            raise RuntimeError("argnums must be non-empty")
        if len(set(argnums)) != len(argnums):
            raise RuntimeError(f"argnums elements must be unique, got {argnums}")
        for i in argnums:
            if not isinstance(i, int):
                raise RuntimeError(f"argnum must be int, got: {type(i)}")


def _chosen(args: tuple[Any, ...], argnums: Any) -> tuple[Any, list[int]]:
    """(the arguments to differentiate, one or a tuple, and their places)."""
    _check_argnums(argnums)
    places = []
    for i in argnums if isinstance(argnums, tuple) else (argnums,):
        if not -len(args) <= i < len(args):
            raise RuntimeError(f"Got argnum={i}, but only {len(args)} positional inputs")
        places.append(i % len(args))
    if isinstance(argnums, tuple):
        return tuple([args[i] for i in places]), places
    return args[places[0]], places


def _replaced(args: tuple[Any, ...], places: list[int], several: bool, new: Any) -> list[Any]:
    made = list(args)
    for i, value in zip(places, new if several else (new,), strict=True):
        made[i] = value
    return made


class _Inputs:
    """The tensors to differentiate with respect to, and the function's view of them.

    Under vmap each sample has gradients of its own, so the graph's leaves have the batches of all
    vmaps around as their first dimensions, and the function sees samples of them.
    """

    def __init__(self, leaves: list[Any]) -> None:
        for t in leaves:
            if not isinstance(t, Tensor):
                raise ValueError(f"Thing passed to transform API must be Tensor, got {type(t)}")
        self.depth = len(modes.state.vmaps)
        self.own = [_differentiable(lowered(t, self.depth)) for t in leaves]

    def seen(self) -> Leaves:
        return self.lift(self.own)

    def lift(self, tensors: Leaves) -> Leaves:
        """Tensors of the graph as the function's."""
        return [lifted(t, self.depth) for t in tensors] if self.depth else tensors

    def lower(self, values: list[Any]) -> list[Any]:
        """The function's tensors as those of the graph."""
        if not self.depth:
            return values
        return [lowered(t, self.depth) if isinstance(t, Tensor) else t for t in values]


def _differentiable(t: Tensor) -> Tensor:
    """A tensor on the same bytes that requires grad; of what the caller records it knows on."""
    return t.view_as(t) if t._rg else t.detach().requires_grad_()


def _depends_on_others(outputs: list[Any], own: Leaves) -> bool:
    """Whether the graph behind the outputs ends in a leaf that is none of the inputs made here."""
    ends = {edge(t)[0] for t in own if t._base is None}
    seen = set(ends)
    stack = [edge(t)[0] for t in outputs if isinstance(t, Tensor) and t._rg]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        edges = node._skimp_edges
        if not edges:
            return True
        stack.extend(edges[::2])
    return False


def _released(tree: Any, keep: bool) -> Any:
    """The tensors without this transform's part of the graph."""
    if keep:
        return tree
    return tree_map(lambda t: t.detach() if isinstance(t, Tensor) and t.requires_grad else t, tree)


def _pair(result: Any, who: str) -> tuple[Any, Any]:
    if not (isinstance(result, tuple) and len(result) == 2):
        raise RuntimeError(
            f"{who}: output of function f should be a tuple: (output, aux) if has_aux is True"
        )
    return result


def _only_tensors(tree: Any, who: str) -> tuple[Leaves, TreeSpec]:
    leaves, spec = tree_flatten(tree)
    for t in leaves:
        if not isinstance(t, Tensor):
            raise RuntimeError(
                f"{who}: expected f(*primals) to return only tensors, got unsupported type "
                f"{type(t)}"
            )
    return leaves, spec


def _refuse_integers(outs: Leaves) -> None:
    for t in outs:
        if not (t._dtype.is_floating_point or t._dtype.is_complex):
            raise RuntimeError(
                "vjp(f, ...): All outputs of f must be floating-point or complex Tensors, got "
                f"Tensor with dtype {t._dtype}"
            )


def _products(
    outputs: Leaves, inputs: Leaves, cotangents: list[Any], keep: bool, create: bool
) -> Leaves:
    """Cotangents times the Jacobian; zeros for inputs that have no part in it."""
    used = [(t, g) for t, g in zip(outputs, cotangents, strict=True) if t._rg]
    found: Any = (None,) * len(inputs)
    if used:
        outs, given = [t for t, _ in used], [g for _, g in used]
        found = calls.grad(
            outs, inputs, given, retain_graph=keep, create_graph=create, allow_unused=True
        )
    return [
        t.new_zeros(shape_of(t)) if g is None else g for g, t in zip(found, inputs, strict=True)
    ]


# -- gradients ------------------------------------------------------------------------------------


def grad_and_value(func: Function, argnums: Any = 0, has_aux: bool = False) -> Function:
    """A function that returns (gradients, value), or (gradients, (value, aux)).

    Shape: the gradients have the arguments' shapes; `func` returns one number.
    Dtypes: arguments that are differentiated are floating point or complex numbers.
    Raises: RuntimeError for a value of more than one element and for arguments of other dtypes.
    Memory: new tensors; no `.grad` changes.
    """

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        outer = modes.state.grad
        with modes.enable_grad():
            wanted, places = _chosen(args, argnums)
            leaves, spec = tree_flatten(wanted)
            inputs = _Inputs(leaves)
            several = isinstance(argnums, tuple)
            given = _replaced(args, places, several, tree_unflatten(inputs.seen(), spec))
            output, aux = func(*given, **kwargs), None
            if has_aux:
                output, aux = _pair(output, "grad_and_value(f)(*args)")
            _check_scalar(output)
            behind = inputs.lower([output, *tree_flatten(aux)[0]])
            create = outer and _depends_on_others(behind, inputs.own)
            ones = [None] if not inputs.depth else [behind[0].new_ones(shape_of(behind[0]))]
            grads = inputs.lift(_products(behind[:1], inputs.own, ones, create, create))
        result = _released(tree_unflatten(grads, spec), create)
        value = _released(output, create)
        return result, (value, _released(aux, create)) if has_aux else value

    return wrapper


def _check_scalar(output: Any) -> None:
    who = "grad_and_value(f)(*args)"
    if not isinstance(output, Tensor):
        raise RuntimeError(f"{who}: Expected f(*args) to return a Tensor, got {type(output)}")
    if output.dim() != 0:
        raise RuntimeError(
            f"{who}: Expected f(*args) to return a scalar Tensor, got tensor with {output.dim()} "
            "dims. Maybe you wanted to use the vjp or jacrev APIs instead?"
        )


def grad(func: Function, argnums: Any = 0, has_aux: bool = False) -> Function:
    """A function that returns the gradients of `func`, whose value is a scalar; with `has_aux`
    (gradients, aux).

    Shape: the gradients have the arguments' shapes; `func` returns one number.
    Dtypes: arguments that are differentiated are floating point or complex numbers.
    Raises: RuntimeError for a value of more than one element and for arguments of other dtypes.
    Memory: new tensors; no `.grad` changes.
    """

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        found, value = grad_and_value(func, argnums, has_aux)(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return wrapper


def vjp(func: Function, *primals: Any, has_aux: bool = False) -> Any:
    """(output, function from cotangents to their products with the Jacobian); with `has_aux` aux
    is a third.

    The function returns one product if there is one primal, else a tuple.

    Shape: cotangents have the outputs' shapes, the products the primals'.
    Dtypes: arguments that are differentiated are floating point or complex numbers.
    Raises: RuntimeError for outputs that are no tensors or of other dtypes, and for cotangents of
        another structure.
    Memory: new tensors; the function keeps what the graph saved until it is gone.
    """
    outer = modes.state.grad
    who = "vjp(f, *primals)"
    with modes.enable_grad():
        leaves, spec = tree_flatten(primals)
        inputs = _Inputs(leaves)
        output, aux = func(*tree_unflatten(inputs.seen(), spec)), None
        if has_aux:
            output, aux = _pair(output, who)
        outs, out_spec = _only_tensors(output, who)
        _refuse_integers(outs)
        behind = inputs.lower([*outs, *tree_flatten(aux)[0]])
        connected = outer and _depends_on_others(behind, inputs.own)
        behind = behind[: len(outs)]

    def product(
        cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None
    ) -> tuple[Any, ...]:
        given, given_spec = tree_flatten(cotangents)
        if given_spec != out_spec:
            raise RuntimeError(
                "Expected pytree structure of cotangents to be the same as pytree structure of "
                f"outputs to the function. cotangents: {_pytree_of(given_spec)}, primal output: "
                f"{_pytree_of(out_spec)}"
            )
        create = modes.state.grad if create_graph is None else create_graph
        create = create and (connected or any([t.requires_grad for t in given]))
        with modes.enable_grad():
            found = _products(behind, inputs.own, inputs.lower(given), retain_graph, create)
            found = inputs.lift(found)
        result: tuple[Any, ...] = tree_unflatten(_released(found, create), spec)
        return result

    value = _released(tree_unflatten(outs, out_spec), connected)
    one = (lambda *a, **k: product(*a, **k)[0]) if len(primals) == 1 else product
    # PyTorch gives a tuple even for one primal
    del one
    return (value, product, _released(aux, connected)) if has_aux else (value, product)


def _pytree_of(spec: TreeSpec) -> str:
    """A structure as its containers around stars."""
    return str(tree_unflatten([_Star()] * spec.num_leaves, spec))


class _Star:
    def __repr__(self) -> str:
        return "*"


def jvp(
    func: Function, primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False
) -> Any:
    """(output, Jacobian times the tangents); with `has_aux` aux is a third.

    Computed by differentiating a vjp with respect to its cotangents, which takes `func` to be
    differentiable twice.

    Shape: tangents have the primals' shapes, the product the output's.
    Dtypes: arguments that are differentiated are floating point or complex numbers.
    Raises: RuntimeError for tangents of another structure or shape.
    Memory: new tensors.
    """
    who = "jvp(f, primals, tangents)"
    if not isinstance(primals, tuple):
        raise RuntimeError(
            f"{who}: Expected primals to be a tuple. E.g. it should be valid to call f(*primals)."
        )
    flat, spec = tree_flatten(primals)
    given, given_spec = tree_flatten(tangents)
    if spec != given_spec:
        raise RuntimeError(
            f"{who}: Expected primals and tangents to have the same python structure. For "
            "example, if primals is a tuple of 3 tensors, tangents also must be. Got primals "
            f"with structure {spec} and tangents with structure {given_spec}"
        )
    for what, values in (("primals", flat), ("tangents", given)):
        if not values:
            raise RuntimeError(f"{who}: Expected {what} to contain at least one Tensor.")
        for t in values:
            if not isinstance(t, Tensor):
                raise RuntimeError(f"{who}: Expected {what} to only contain Tensors, got {type(t)}")
    for t, v in zip(flat, given, strict=True):
        if shape_of(t) != shape_of(v):
            raise RuntimeError(
                "Trying to set a forward gradient that has a different size than that of the "
                f"original Tensor, this is not supported. Tensor is of size {list(t.shape)} "
                f"while the given forward gradient is of size {list(v.shape)}."
            )
    forward = _Forward(func, primals, who, has_aux, strict)
    made = tree_unflatten(forward.times(given), forward.out_spec)
    return (forward.value, made, forward.aux) if has_aux else (forward.value, made)


class _Forward:
    """A function run once, ready to be multiplied by tangents."""

    def __init__(
        self, func: Function, primals: Any, who: str, has_aux: bool, strict: bool = False
    ) -> None:
        self._outer = modes.state.grad
        with modes.enable_grad():
            leaves, spec = tree_flatten(primals)
            self._inputs = inputs = _Inputs(leaves)
            output, aux = func(*tree_unflatten(inputs.seen(), spec)), None
            if has_aux:
                output, aux = _pair(output, who)
            outs, self.out_spec = _only_tensors(output, who)
            behind = inputs.lower([*outs, *tree_flatten(aux)[0]])
            if strict and not all([t._rg for t in behind[: len(outs)]]):
                raise RuntimeError(
                    f"{who[:-1]}, strict=True): The output of f is independent of the inputs. "
                    "This is not allowed with strict=True."
                )
            self._connected = self._outer and _depends_on_others(behind, inputs.own)
            behind = behind[: len(outs)]
            self._dummies = [t.new_zeros(shape_of(t)).requires_grad_() for t in behind]
            self._grads = _products(behind, inputs.own, self._dummies, True, True)
        self.outs = outs
        self.value = _released(tree_unflatten(outs, self.out_spec), self._connected)
        self.aux = _released(aux, self._connected)

    def times(self, tangents: list[Any]) -> list[Any]:
        """The Jacobian times the tangents, leaf by leaf of the output."""
        keep = self._connected or (self._outer and any([t.requires_grad for t in tangents]))
        with modes.enable_grad():
            given = self._inputs.lower(tangents)
            found = self._inputs.lift(_products(self._grads, self._dummies, given, True, keep))
        result: list[Any] = _released(found, keep)
        return result


# -- Jacobians ------------------------------------------------------------------------------------


def _basis(leaves: Leaves) -> tuple[list[int], Leaves]:
    """(how many elements each leaf has, for each leaf the rows of the identity that are its part):
    row i holds a one at the i-th element of all leaves.
    """
    sizes = [numel(shape_of(t)) for t in leaves]
    n, start, parts = sum(sizes), 0, []
    for t, size in zip(leaves, sizes, strict=True):
        part = t.new_zeros((n, size))
        part.diagonal(-start).fill_(1)
        parts.append(part.view((n, *shape_of(t))))
        start += size
    return sizes, parts


def jacrev(
    func: Function,
    argnums: Any = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> Function:
    """A function that returns the Jacobian of `func`: for each leaf of the output, for each leaf of
    the arguments, a tensor of shape (*output, *argument).

    All rows are computed in one backward, or `chunk_size` of them at a time.

    Shape: (*output, *argument) for each pair of leaves.
    Dtypes: arguments that are differentiated are floating point or complex numbers.
    Raises: RuntimeError for outputs that are no tensors and arguments of other dtypes.
    Memory: new tensors: all rows at once, or `chunk_size` of them.
    """
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        wanted, places = _chosen(args, argnums)
        several = isinstance(argnums, tuple)

        def inner(*given: Any) -> Any:
            return func(*_replaced(args, places, several, given if several else given[0]), **kwargs)

        found = vjp(inner, *(wanted if several else (wanted,)), has_aux=has_aux)
        output, product = found[0], found[1]
        outs, out_spec = tree_flatten(output)
        in_leaves, in_spec = tree_flatten(wanted)
        sizes, basis = _basis(outs)

        def rows_of(*cotangents: Any) -> Any:
            return tuple(tree_flatten(product(tree_unflatten(list(cotangents), out_spec)))[0])

        rows = vmap(rows_of, chunk_size=chunk_size)(*basis)
        blocks: list[list[Any]] = [[] for _ in outs]
        for row, x in zip(rows, in_leaves, strict=True):
            for block, t, part in zip(blocks, outs, row.split(sizes), strict=True):
                block.append(part.reshape((*shape_of(t), *shape_of(x))))
        result = tree_unflatten([tree_unflatten(b, in_spec) for b in blocks], out_spec)
        return (result, found[2]) if has_aux else result

    return wrapper


def jacfwd(
    func: Function, argnums: Any = 0, has_aux: bool = False, *, randomness: str = "error"
) -> Function:
    """What `jacrev` returns, from products with tangents: less work where the arguments have fewer
    elements than the output.

    Shape: (*output, *argument) for each pair of leaves.
    Dtypes: arguments that are differentiated are floating point or complex numbers.
    Raises: RuntimeError for outputs that are no tensors and arguments of other dtypes.
    Memory: new tensors.
    """

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        wanted, places = _chosen(args, argnums)
        several = isinstance(argnums, tuple)

        def inner(*given: Any) -> Any:
            return func(*_replaced(args, places, several, given if several else given[0]), **kwargs)

        primals = wanted if several else (wanted,)
        forward = _Forward(inner, primals, "jvp(f, primals, tangents)", has_aux)
        leaves, _ = tree_flatten(primals)
        sizes, basis = _basis(leaves)
        columns = vmap(lambda *tangents: tuple(forward.times(list(tangents))), out_dims=-1)(*basis)
        blocks = []
        for column, t in zip(columns, forward.outs, strict=True):
            parts = column.split(sizes, -1)
            whole = [
                part.reshape((*shape_of(t), *shape_of(x)))
                for part, x in zip(parts, leaves, strict=True)
            ]
            blocks.append(tree_unflatten(whole, tree_structure(wanted)))
        result = tree_unflatten(blocks, forward.out_spec)
        return (result, forward.aux) if has_aux else result

    return wrapper


def hessian(func: Function, argnums: Any = 0) -> Function:
    """A function that returns the Hessian of `func`: columns of the Jacobian of its Jacobian.

    Shape: (*output, *argument, *argument) for each triple of leaves.
    Dtypes: arguments that are differentiated are floating point or complex numbers.
    Raises: RuntimeError for outputs that are no tensors and arguments of other dtypes.
    Memory: new tensors.
    """
    return jacfwd(jacrev(func, argnums), argnums)

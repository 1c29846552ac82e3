"""All parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from skimp._engine.tensor.tensor import Tensor
from skimp._ops.create.queries import typename
from skimp.nn import ops

__all__ = ["parameters_to_vector", "vector_to_parameters"]


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """The parameters one after the other.

    Shape: any shapes of n elements in all, to (n,).
    Dtypes: any; the widest of them.
    Raises: ValueError for no parameters, RuntimeError for some on several devices.
    Memory: a new tensor, with a gradient to each parameter.
    """
    return ops.cat([p.view(-1) for p in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Let each parameter look at its part of a vector.

    Writing to a parameter afterwards writes to the vector:

    >>> layer, vector = torch.nn.Linear(1, 1), torch.tensor([2.0, 3.0])
    >>> torch.nn.utils.vector_to_parameters(vector, layer.parameters())
    >>> layer.weight.data.zero_()
    tensor([[0.]])
    >>> vector
    tensor([0., 3.])

    Shape: (n,), n the elements of all parameters.
    Dtypes: any; the vector's.
    Raises: TypeError for what is no tensor.
    Memory: parameters become views of the vector.
    """
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected torch.Tensor, but got: {typename(vec)}")
    start = 0
    for p in parameters:
        count = p.numel()
        p.data = vec[start : start + count].view_as(p).data
        start += count


def flatten_dense_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """The elements of all tensors one after the other (`torch._utils._flatten_dense_tensors`,
    which trainers over several processes take).
    """
    flat = [t.contiguous().view(-1) for t in tensors]
    return flat[0] if len(flat) == 1 else ops.cat(flat)


def unflatten_dense_tensors(flat: Tensor, tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """Views of the parts of `flat`, in the tensors' shapes."""
    parts, start = [], 0
    for t in tensors:
        count = t.numel()
        parts.append(flat.narrow(0, start, count).view(t.shape))
        start += count
    return tuple(parts)

"""Which operations share memory, which write in place, and which take memory of their own."""

from collections.abc import Callable

import numpy
import torch
from torch import Tensor


def sharing_with_numpy() -> None:
    """A tensor made from an array is the array's memory, and the other way round."""
    array = numpy.ones(4)
    tensor = torch.from_numpy(array)
    print(array, tensor)
    tensor.add_(1)
    print(array, tensor)
    tensor.numpy()[0] = 9
    print(array, tensor)


def what_shares() -> None:
    """Views share memory with their tensor; functions that gather copy, even all of it."""
    numbers = torch.arange(6.0)
    index = torch.tensor([0, 1, 2, 3, 4, 5])
    results = {
        "view": numbers.view(2, 3),
        "[:]": numbers[:],
        "detach": numbers.detach(),
        ".data": numbers.data,
        "index_select": numbers.index_select(0, index),
        "masked_select": numbers.masked_select(numbers >= 0),
        "gather": numbers.gather(0, index),
        "clone": numbers.clone(),
    }
    for name, result in results.items():
        shared = result.untyped_storage().data_ptr() == numbers.untyped_storage().data_ptr()
        print(f"{name:14} {'shares' if shared else 'copies'}")


def by_slice(total: Tensor, more: Tensor) -> Tensor:
    total[:] = total + more
    return total


def by_out(total: Tensor, more: Tensor) -> Tensor:
    return torch.add(more, total, out=total)


def by_operator(total: Tensor, more: Tensor) -> Tensor:
    total += more
    return total


def by_method(total: Tensor, more: Tensor) -> Tensor:
    return total.add_(more)


def by_rebinding(total: Tensor, more: Tensor) -> Tensor:
    return total + more


def ways_to_write(add: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Does `add` leave its result where `total` was?"""
    total, more = torch.tensor([3, 4]), torch.tensor([1, 2])
    result = add(total, more)
    same = result is total, result.data_ptr() == total.data_ptr()
    print(f"{add.__name__:14} {result.tolist()} same object: {same[0]}, same memory: {same[1]}")


def clone_and_detach() -> None:
    """A clone keeps the numbers of its moment; a detached tensor follows its source."""
    source = torch.tensor(1.0)
    clone, detached = source.clone(), source.detach()
    source.data *= 3
    clone += 1
    print(source, clone, detached)


if __name__ == "__main__":
    sharing_with_numpy()
    what_shares()
    for way in (by_rebinding, by_slice, by_out, by_operator, by_method):
        ways_to_write(way)
    clone_and_detach()

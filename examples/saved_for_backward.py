"""What autograd keeps for backward, and ways not to keep it.

`disable_saved_tensors_hooks()` without a message is skimp's own: nothing is kept inside. PyTorch
asks for a message there, and goes on keeping.
"""

import multiprocessing

import numpy
import torch
from torch.autograd.graph import disable_saved_tensors_hooks, saved_tensors_hooks

SIDE = 512
KIB = 1024


def in_use() -> int:
    """KiB that tensors occupy now."""
    return torch.cuda.memory_allocated() // KIB


def product(square: torch.Tensor) -> torch.Tensor:
    middle = square.mm(square)
    return middle.exp().sum()


def keeping_nothing() -> None:
    """Inside, intermediate results are gone as soon as the program lets go of them."""
    square = torch.full((SIDE, SIDE), 1e-3, requires_grad=True)
    before = in_use()
    kept = product(square)
    print("a graph keeps", in_use() - before, "KiB")
    del kept
    with disable_saved_tensors_hooks():
        before = in_use()
        result = product(square)
        print("without it   ", in_use() - before, "KiB")
        try:
            with saved_tensors_hooks(lambda t: t, lambda t: t):
                pass
        except RuntimeError as error:
            print("hooks inside:", str(error).split(" here:")[0])
    try:
        result.backward()
    except RuntimeError as error:
        print("backward:    ", str(error).splitlines()[0])


def with_a_message() -> None:
    """As PyTorch has it: only the hooks are off."""
    number = torch.tensor(3.0, requires_grad=True)
    with disable_saved_tensors_hooks("no hooks in this house"):
        square = number**2
        try:
            with saved_tensors_hooks(lambda t: t, lambda t: t):
                pass
        except RuntimeError as error:
            print("with a message:", error)
    square.backward()
    print("and the gradient is there:", number.grad)


def over_and_over() -> None:
    """A thousand times the same work takes the memory of one."""
    most = []
    for _ in range(2):
        torch.cuda.reset_peak_memory_stats()
        with disable_saved_tensors_hooks():
            for _ in range(1000):
                small = torch.rand(100, 100)
                total = small.mm(small).sum()
        most.append(torch.cuda.max_memory_allocated())
        del small, total
    print("the second thousand takes no more than the first:", most[0] == most[1])
    print("which is less than four of its matrices:", most[0] < in_use() * KIB + 4 * 40_000)


def letting_go() -> None:
    """`del` frees what the graph does not need, before backward runs."""
    before = in_use()
    weight = torch.ones(SIDE, SIDE, requires_grad=True)
    shifted = weight + 1
    total = shifted.sum()
    total.data_ptr(), shifted.data_ptr()
    print("with all names:", in_use() - before, "KiB")
    del shifted
    print("without one:   ", in_use() - before, "KiB, which is the leaf")
    total.backward()
    print("the gradient is there:", bool((weight.grad == 1).all()))


def without_gradients(square: torch.Tensor) -> torch.Tensor:
    return square.mm(square).sum()


def elsewhere() -> None:
    """The same work in another process, and in NumPy: no graph here."""
    torch.manual_seed(0)
    square = torch.rand(SIDE, SIDE)
    here = without_gradients(square)
    with multiprocessing.Pool(1) as pool:
        there = pool.apply_async(without_gradients, [square]).get()
    print("in another process:", bool(here == there), there.requires_grad)
    array = square.numpy()
    print("in NumPy:", numpy.isclose(numpy.dot(array, array).sum(), here.item(), rtol=1e-5))


if __name__ == "__main__":
    keeping_nothing()
    with_a_message()
    over_and_over()
    letting_go()
    elsewhere()

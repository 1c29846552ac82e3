"""What a clone and a detached tensor have to do with the gradients of the tensor they came from."""

import warnings

import torch


def values() -> None:
    """A clone keeps the number of its moment and its history; a detached tensor has neither."""
    source = torch.tensor(1.0, requires_grad=True)
    clone, detached = source.clone(), source.detach()
    source.data *= 3
    clone += 1
    print("the source after `.data *= 3`, its clone after `+= 1`, and the detached one:")
    print(source, clone, detached, sep="\n")


def through_a_clone() -> None:
    """What flows into a clone flows on to its source, and adds up there."""
    source = torch.tensor(1.0, requires_grad=True)
    clone = source.clone()
    first = source**2
    second = source**2 + clone * 3
    first.backward()
    print("2x at 1:", source.grad)
    second.backward()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        print("the clone keeps no gradient:", clone.grad)
    for warning in said:
        print(f"  {warning.category.__name__}: {str(warning.message).split('. ')[0]}.")
    print("and 2x + 3 more at the source:", source.grad)


def through_a_layer() -> None:
    """Clones and detached copies of a layer's input don't change what the input receives."""
    torch.manual_seed(0)
    inputs = torch.tensor([1.0, 2.0], requires_grad=True)
    clone, detached, both = inputs.clone(), inputs.detach(), inputs.clone().detach()
    layer = torch.nn.Linear(2, 1)
    layer(inputs).backward()
    print("the layer's weights are the gradient:", inputs.grad)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        print("clone:   ", clone.requires_grad, clone.grad)
    print("detached:", detached.requires_grad, "and a detached clone:", both.requires_grad)


def a_leaf_from_a_clone() -> None:
    """A clone of a tensor without gradients may become a leaf with its own."""
    source = torch.tensor(1.0)
    leaf = source.clone()
    leaf.requires_grad_()
    (leaf**2).backward()
    print("source:", source.grad, "leaf:", leaf.grad)


def overwritten() -> None:
    """No error means a right gradient: what backward needs can't be overwritten silently."""
    writes = {
        "mul_": lambda t: t.mul_(2),
        "resize_": lambda t: t.resize_(3),
        "resize_as_": lambda t: t.resize_as_(torch.zeros(4)),
        "set_": lambda t: t.set_(torch.zeros(2, 2)),
        "transpose_": lambda t: t.transpose_(0, 1),
    }
    for name, write in writes.items():
        leaf = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        try:
            middle = leaf * 1
            result = (middle * middle).sum()
            with torch.no_grad():
                write(middle)
            result.backward()
        except RuntimeError as error:
            print(f"{name:11} refused: {type(error).__name__}")
        else:
            assert leaf.grad is not None
            print(f"{name:11} {leaf.grad.tolist()}")


if __name__ == "__main__":
    values()
    through_a_clone()
    through_a_layer()
    a_leaf_from_a_clone()
    overwritten()

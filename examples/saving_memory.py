"""Two ways to spare memory: look at numbers instead of copying them, and compute in place."""

import torch


def looking() -> None:
    """A slice is another look at the same numbers; `clone` and a mask make new ones."""
    shelves = torch.arange(2 * 4 * 5).reshape(shape=(2, 4, 5))
    corner = shelves[:, 0:2, 2:4]
    every_other = shelves[:, 0::2, 2:5]
    print("two shelves, and two looks at them", shelves, corner, every_other, sep="\n")

    every_other[-1] = 100
    print("after writing 100 through the second look", every_other, shelves, sep="\n")

    apart = shelves[:, 0::2, 2:5].clone()
    apart[:] = -1
    print("what was written to a clone is not on the shelves:", bool((shelves == -1).any()))

    row = torch.arange(5)
    chosen = (row >= 2) & (row < 4)
    picked = row[chosen]
    picked[-1] = 0
    print("a mask picks a copy", row, chosen, picked, sep="\n")


def computing() -> None:
    """`x = f(x)` takes new memory; `x[:] = f(x)`, `f_(x)` and `x.f_()` use what `x` has."""
    growth = torch.ones(5)
    name, memory = id(growth), growth.data_ptr()
    growth = torch.exp(growth)
    print(
        "rebinding keeps the object:",
        id(growth) == name,
        "and the memory:",
        growth.data_ptr() == memory,
    )

    name, memory = id(growth), growth.data_ptr()
    growth[:] = torch.exp(growth)
    print(
        "assigning to [:] keeps the object:",
        id(growth) == name,
        "and the memory:",
        growth.data_ptr() == memory,
    )

    growth = torch.ones(5)
    memory = growth.data_ptr()
    print(growth)
    torch.exp_(growth)
    print(growth)
    growth.exp_()
    print(growth, "in the same memory:", growth.data_ptr() == memory)


def doubling_a_column() -> None:
    """A column vector, added to itself in the memory of the row it was made from."""
    row = torch.ones(5)
    memory = row.data_ptr()
    column = row.view(-1, 1)
    column += column
    print("a doubled column", column, "in the same memory:", sep="\n", end=" ")
    print(column.data_ptr() == memory)


if __name__ == "__main__":
    looking()
    computing()
    doubling_a_column()

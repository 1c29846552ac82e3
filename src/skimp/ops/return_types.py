"""The named tuples that ops with several results return (torch.return_types)."""

from __future__ import annotations

from typing import Any


def named(name: str, *fields: str) -> Any:
    """A tuple type with PyTorch's field names and repr."""

    def new(cls: Any, *values: Any) -> Any:
        if len(values) == 1 and isinstance(values[0], (tuple, list)):
            values = tuple(values[0])
        if len(values) != len(fields):
            raise TypeError(
                f"torch.return_types.{name}() takes a {len(fields)}-sequence "
                f"({len(values)}-sequence given)"
            )
        return tuple.__new__(cls, values)

    def show(self: Any) -> str:
        parts = ",\n".join(f"{f}={v!r}" for f, v in zip(fields, self, strict=True))
        return f"torch.return_types.{name}(\n{parts})"

    space: dict[str, Any] = {
        "__slots__": (), "__new__": new, "__repr__": show, "_fields": fields, "__match_args__": fields,
        "n_fields": len(fields), "n_sequence_fields": len(fields), "n_unnamed_fields": 0,
        "__module__": "torch.return_types", "__reduce__": lambda self: (type(self), tuple(self)),
    }  # fmt: skip
    for i, f in enumerate(fields):
        space[f] = property(lambda self, i=i: tuple.__getitem__(self, i))
    return type(name, (tuple,), space)


max = named("max", "values", "indices")  # noqa: A001
min = named("min", "values", "indices")  # noqa: A001
aminmax = named("aminmax", "min", "max")
sort = named("sort", "values", "indices")
topk = named("topk", "values", "indices")
kthvalue = named("kthvalue", "values", "indices")
median = named("median", "values", "indices")
nanmedian = named("nanmedian", "values", "indices")
mode = named("mode", "values", "indices")
cummax = named("cummax", "values", "indices")
cummin = named("cummin", "values", "indices")
frexp = named("frexp", "mantissa", "exponent")
histogram = named("histogram", "hist", "bin_edges")

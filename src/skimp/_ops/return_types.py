"""The named tuples that ops with several results return (torch.return_types)."""

from __future__ import annotations

import copyreg
import operator
import sys
from typing import Any


def named(name: str, *fields: str) -> Any:
    """A tuple type with PyTorch's field names and repr."""

    def new(cls: Any, *values: Any) -> Any:
        if len(values) in (1, 2) and isinstance(values[0], (tuple, list)):
            values = tuple(values[0])  # a dict behind it is what pickles of PyTorch's have
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
        "__slots__": (), "__new__": new, "__repr__": show, "_fields": fields,
        "__match_args__": fields, "n_fields": len(fields), "n_sequence_fields": len(fields),
        "n_unnamed_fields": 0, "__module__": "torch.return_types",
        "__reduce__": lambda self: (type(self), (tuple(self), {})),
        "_of": classmethod(tuple.__new__),  # a tuple of as many, which an op has made
    }  # fmt: skip
    for i, f in enumerate(fields):
        space[f] = property(operator.itemgetter(i))
    made = type(name, (tuple,), space)
    copyreg.pickle(made, _parts)
    return made


def _parts(results: Any) -> Any:
    """How a pickle has them: PyTorch's way where its name is ours, by our own name elsewhere."""
    cls = type(results)
    if getattr(sys.modules.get(cls.__module__), cls.__name__, None) is cls:
        return results.__reduce__()
    return _made, (cls.__name__, tuple(results))


def _made(name: str, results: tuple[Any, ...]) -> Any:
    return next(t for t in _TYPES if t.__name__ == name)(results)


max = named("max", "values", "indices")
min = named("min", "values", "indices")
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
linalg_inv_ex = named("linalg_inv_ex", "inverse", "info")
linalg_solve_ex = named("linalg_solve_ex", "result", "info")
linalg_slogdet = named("linalg_slogdet", "sign", "logabsdet")
slogdet = named("slogdet", "sign", "logabsdet")
linalg_lu = named("linalg_lu", "P", "L", "U")
linalg_lu_factor = named("linalg_lu_factor", "LU", "pivots")
linalg_lu_factor_ex = named("linalg_lu_factor_ex", "LU", "pivots", "info")
lu_unpack = named("lu_unpack", "P", "L", "U")
triangular_solve = named("triangular_solve", "solution", "cloned_coefficient")
linalg_qr = named("linalg_qr", "Q", "R")
qr = named("qr", "Q", "R")
linalg_cholesky_ex = named("linalg_cholesky_ex", "L", "info")
linalg_svd = named("linalg_svd", "U", "S", "Vh")
svd = named("svd", "U", "S", "V")
linalg_eigh = named("linalg_eigh", "eigenvalues", "eigenvectors")
linalg_eig = named("linalg_eig", "eigenvalues", "eigenvectors")
linalg_lstsq = named("linalg_lstsq", "solution", "residuals", "rank", "singular_values")
_lu_with_info = named("_lu_with_info", "LU", "pivots", "info")
linalg_ldl_factor = named("linalg_ldl_factor", "LD", "pivots")
linalg_ldl_factor_ex = named("linalg_ldl_factor_ex", "LD", "pivots", "info")
geqrf = named("geqrf", "a", "tau")
histogramdd = named("histogramdd", "hist", "bin_edges")


_TYPES = [v for v in vars().values() if isinstance(v, type) and issubclass(v, tuple)]


def all_return_types() -> list[type]:
    """All of them."""
    return list(_TYPES)

"""The ops, a file per family. Importing this package declares them all and fills the namespaces of `forms`."""

from skimp.ops import (
    access,
    advanced,
    complex_views,
    copies,
    creation,
    elementwise,
    indexing,
    random,
    reductions,
    storages,
    views,
)

__all__ = [
    "access",
    "advanced",
    "complex_views",
    "copies",
    "creation",
    "elementwise",
    "indexing",
    "random",
    "reductions",
    "storages",
    "views",
]

"""The ops, a file per family. Importing this package declares them all and fills the namespaces of `forms`."""

from skimp.ops import (
    access,
    advanced,
    complex_views,
    copies,
    creation,
    elementwise,
    indexing,
    masks,
    random,
    reductions,
    scatter,
    selection,
    storages,
    view_copies,
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
    "masks",
    "random",
    "reductions",
    "scatter",
    "selection",
    "storages",
    "view_copies",
    "views",
]

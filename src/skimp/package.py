"""torch.package: refused, for its archives hold code."""

from __future__ import annotations

from skimp._compat.refusals import names

_NAMES = (
    "Directory",
    "EmptyMatchError",
    "GlobGroup",
    "Importer",
    "ObjMismatchError",
    "ObjNotFoundError",
    "OrderedImporter",
    "PackageExporter",
    "PackageImporter",
    "PackagingError",
)
__all__ = list(_NAMES)
__getattr__ = names(
    __name__,
    _NAMES,
    "skimp runs no code from archives; torch.save the state_dict, and keep the code beside it",
)

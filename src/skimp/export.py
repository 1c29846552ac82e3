"""torch.export: refused, for nothing is traced."""

from __future__ import annotations

from skimp._compat.refusals import names

_NAMES = (
    "AdditionalInputs",
    "Constraint",
    "CustomDecompTable",
    "Dim",
    "ExportBackwardSignature",
    "ExportGraphSignature",
    "ExportedProgram",
    "FlatArgsAdapter",
    "ModuleCallEntry",
    "ModuleCallSignature",
    "ShapesCollection",
    "UnflattenedModule",
    "default_decompositions",
    "dims",
    "draft_export",
    "export",
    "load",
    "register_dataclass",
    "save",
    "unflatten",
)
__all__ = list(_NAMES)
__getattr__ = names(
    __name__, _NAMES, "skimp traces no programs; torch.save the state_dict, and export with PyTorch"
)

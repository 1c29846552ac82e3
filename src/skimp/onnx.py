"""torch.onnx: refused, for there is no graph to export."""

from __future__ import annotations

from skimp._compat.refusals import names


def is_in_onnx_export() -> bool:
    """Nothing is ever exported."""
    return False


_NAMES = (
    "ExportableModule",
    "InputObserver",
    "ONNXProgram",
    "OnnxExporterError",
    "export",
)
__all__ = list(_NAMES)
__getattr__ = names(
    __name__,
    _NAMES,
    "skimp records no graph to export; torch.save the state_dict, and export with PyTorch",
)

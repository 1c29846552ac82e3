"""torch.utils.cpp_extension: refused, for there is nothing to link to."""

from __future__ import annotations

from skimp._compat.refusals import names

_NAMES = (
    "BuildExtension",
    "CUDAExtension",
    "CppExtension",
    "SyclExtension",
    "check_compiler_ok_for_platform",
    "get_compiler_abi_compatibility_and_version",
    "get_cxx_compiler",
    "include_paths",
    "is_ninja_available",
    "library_paths",
    "load",
    "load_inline",
    "verify_ninja_availability",
)
__all__ = list(_NAMES)
__getattr__ = names(
    __name__,
    _NAMES,
    "skimp is Python on NumPy, and compiles nothing; write the operation with tensors or NumPy",
)

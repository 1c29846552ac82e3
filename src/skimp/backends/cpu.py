"""torch.backends.cpu: what the processor can do."""

import numpy as np


def get_cpu_capability() -> str:
    """The widest vectors that NumPy's kernels use here, in PyTorch's words."""
    config = np.show_config(mode="dicts") or {}
    found = set(config.get("SIMD Extensions", {}).get("found", ()))
    if any(name.startswith("AVX512") for name in found):
        return "AVX512"
    return "AVX2" if "AVX2" in found else "DEFAULT"

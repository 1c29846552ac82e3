"""torch.utils.dlpack: tensors on other libraries' bytes, and the other way round."""

from skimp._ops.create.interop import DLDeviceType, from_dlpack, to_dlpack

__all__ = ["DLDeviceType", "from_dlpack", "to_dlpack"]

"""torch._inductor: its flags. Nothing is compiled."""

from skimp._inductor import config

__all__ = ["config"]

"""torch.utils.model_zoo: the old name of torch.hub.load_state_dict_from_url."""

from typing import Any

from skimp import hub
from skimp.hub import load_state_dict_from_url as load_url

__all__ = ["load_url"]


def __getattr__(name: str) -> Any:
    return getattr(hub, name)

"""torch.hub: refused, since skimp downloads nothing and runs no code from elsewhere."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = [
    "download_url_to_file",
    "get_dir",
    "help",
    "list",
    "load",
    "load_state_dict_from_url",
    "set_dir",
]


def _refused(*_: Any, **__: Any) -> NoReturn:
    """Refused: skimp downloads nothing."""
    raise RuntimeError(
        "torch.hub: skimp downloads nothing and runs no downloaded code; fetch the file and "
        "torch.load it"
    )


load = list = help = get_dir = set_dir = download_url_to_file = load_state_dict_from_url = _refused

"""torch.hub: files that are in its folder are loaded; nothing is downloaded."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from skimp.serialization.loading import load

__all__ = ["get_dir", "load_state_dict_from_url", "set_dir"]
HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")  # where file names say their hash


class _Place:
    folder: str | None = None


def get_dir() -> str:
    """The folder for files from the net: `$TORCH_HOME/hub`, by default `~/.cache/torch/hub`."""
    if _Place.folder is not None:
        return _Place.folder
    return os.path.join(_get_torch_home(), "hub")


def _get_torch_home() -> str:
    """`$TORCH_HOME`, by default `~/.cache/torch`."""
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.environ.get("TORCH_HOME", os.path.join(cache, "torch")))


def set_dir(d: str | os.PathLike[str]) -> None:
    """Let the folder be this one."""
    _Place.folder = os.path.expanduser(d)


def load_state_dict_from_url(
    url: str,
    model_dir: str | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = False,
) -> Any:
    """What is in the file of this URL's name, if it is in the folder; it is not fetched."""
    folder = Path(model_dir if model_dir is not None else os.path.join(get_dir(), "checkpoints"))
    path = folder / (file_name or os.path.basename(urlparse(url).path))
    if not path.exists():
        raise RuntimeError(
            f"torch.hub.load_state_dict_from_url: skimp downloads nothing; fetch {url} and put it "
            f"at {path}"
        )
    return load(path, map_location=map_location, weights_only=weights_only)

"""torch.hub: files that are in its folder are loaded; skimp downloads nothing and runs no code
from elsewhere.
"""

from __future__ import annotations

import importlib
import os
import re
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlparse

from skimp.serialization import load as _load

__all__ = [
    "download_url_to_file",
    "get_dir",
    "help",
    "list",
    "load",
    "load_state_dict_from_url",
    "set_dir",
]
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
    return _load(path, map_location=map_location, weights_only=weights_only)


def _refused(*_: Any, **__: Any) -> NoReturn:
    """Refused: skimp downloads nothing."""
    raise RuntimeError(
        "torch.hub: skimp downloads nothing and runs no downloaded code; fetch the file and "
        "torch.load it"
    )


load = list = help = download_url_to_file = _refused


def __getattr__(name: str) -> Any:
    if name == "tqdm":  # PyTorch shows it while it downloads, and programs take it from here
        return importlib.import_module("tqdm").tqdm
    from skimp._compat.missing import missing

    raise missing("torch.hub", name, __all__)

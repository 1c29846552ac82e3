"""`%load_ext skimp` in a notebook."""

from typing import Any


def load_ipython_extension(shell: Any) -> None:
    """IPython's hook: the magic `%%memory`, and displays of reports and regions."""
    # displays load what a program that only computes has no use for
    from skimp.lens import notebook

    notebook.load(shell)

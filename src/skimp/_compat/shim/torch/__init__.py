"""The name `torch` in processes that multiprocessing started: its import gets skimp."""

import sys

import skimp
from skimp._compat.finder import install

sys.modules[__name__] = skimp  # before install(), which refuses any other `torch`
install()
skimp.__name__ = __name__

"""Importing this module is `install()`: for a process that is told what to import."""

from skimp._compat.finder import install

install()

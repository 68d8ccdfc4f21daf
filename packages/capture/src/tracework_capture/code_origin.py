"""Whose a code object is: torch's, an installed package's, Python's own library's."""

from __future__ import annotations

import functools
import os
import types

import torch

from .errors import SITE, is_installed_file

TORCH_FOLDER = os.path.dirname(os.path.realpath(torch.__file__)) + os.sep


def is_of_torch(code: types.CodeType) -> bool:
    """Whether the code is torch's: the Python around an operator, as a rule."""
    return _file_is_of_torch(code.co_filename)


@functools.lru_cache(None)
def _file_is_of_torch(filename: str) -> bool:
    return os.path.realpath(filename).startswith(TORCH_FOLDER)


def is_installed(code: types.CodeType) -> bool:
    """Whether the code is of Python's own library or of an installed package."""
    return is_installed_file(code.co_filename)


def is_of_a_package(code: types.CodeType) -> bool:
    """Whether the code is of an installed package: its `__getattr__` of a module, as a rule, imports and keeps what it gives."""
    return os.path.realpath(code.co_filename).startswith(SITE)

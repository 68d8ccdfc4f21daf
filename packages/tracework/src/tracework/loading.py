"""load(): programs from files. Nothing that compiles is imported: what it gives runs without it."""

from __future__ import annotations

import os
from typing import IO, TYPE_CHECKING

import tracework_runtime as runtime

if TYPE_CHECKING:
    import torch


def load(
    file: str | os.PathLike[str] | IO[bytes], module: torch.nn.Module | None = None, *, key: bytes | str | None = None
) -> runtime.Program:
    """The program in a file that save() wrote: call it as the function that was compiled.

    A file is a program, which runs with your rights: load only what you trust.

    Args:
        module: its parameters and buffers are the weights, and stay its own; those of the file are not read.
        key: only a file that was signed with it is loaded.

    Raises:
        tracework_runtime.ProgramFileError: for a file that is damaged, no program, of a newer version, signed otherwise, or made for another
            machine or torch.
    """
    return runtime.load_program(file, module, key=key)

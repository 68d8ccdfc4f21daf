"""save() and load(): programs as files. Nothing that compiles is imported: what load() gives runs without it."""

from __future__ import annotations

import os
from typing import IO, TYPE_CHECKING, Any

import tracework_runtime as runtime

from .errors import InvalidArgument

if TYPE_CHECKING:
    import torch


def save(
    program: Any, file: str | os.PathLike[str] | IO[bytes], *, weights: str = "inside", key: bytes | str | None = None
) -> None:
    """Writes what aot_compile() gave to one file, which load() reads on a machine without a compiler and without the program's source.

    Args:
        program: what aot_compile() gave.
        file: a name, such as "m.tw", or something that is open for writing bytes.
        weights: "inside" of the file; "beside" it, in `m.tw.weights`; "left out": it is loaded with a module that has them.
        key: signs the file, so that load(..., key=) takes it for yours.

    Raises:
        InvalidArgument: for anything else.
    """
    if not isinstance(program, runtime.Program):
        raise InvalidArgument(
            f"save() takes what aot_compile() gave, not {program!r}. Write save(aot_compile(fn, example_inputs), {str(file)!r})."
        )
    try:
        program.save(file, weights=weights, key=key)
    except ValueError as error:
        raise InvalidArgument(f"save(): {error}.") from error


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

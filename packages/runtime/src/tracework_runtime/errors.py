"""Everything the runtime may raise; one root, each error says what to try next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = [
    "ArtifactError",
    "BrokenPromise",
    "BuildError",
    "CacheCorrupt",
    "CacheForeign",
    "CacheUnsafe",
    "CacheWarning",
    "IndexOutOfRange",
    "InputError",
    "LaunchError",
    "LoadError",
    "NoCompiler",
    "NotRecorded",
    "ProgramFileError",
    "RankLost",
    "RanksApart",
    "ResultMismatch",
    "RuntimeFailure",
]


class _Pickled:
    """Of an exception: it is pickled with its message and attributes, whatever its __init__ takes."""

    args: tuple[Any, ...]

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _unpickled, (type(self), self.args, dict(vars(self)))


def _unpickled(cls: type[BaseException], args: tuple[Any, ...], attributes: Mapping[str, Any]) -> BaseException:
    error = cls.__new__(cls, *args)
    vars(error).update(attributes)
    return error


class RuntimeFailure(_Pickled, Exception):
    """Root of this package's errors.

    `advice` is the next thing to try; it is part of the message.
    """

    def __init__(self, message: str, *, advice: str = "") -> None:
        self.message = message
        self.advice = advice
        super().__init__(f"{message}\n  try: {advice}" if advice else message)


class ArtifactError(RuntimeFailure):
    """Bytes that are no Artifact, are damaged, or were written by a newer format."""


class BrokenPromise(RuntimeFailure, RuntimeError):
    """An operator of the program did what its schema says it does not."""


class BuildError(RuntimeFailure):
    """A compiler is missing or refused a kernel; `excerpt` is its first complaint."""

    def __init__(self, message: str, *, advice: str = "", excerpt: str = "") -> None:
        self.excerpt = excerpt
        super().__init__(f"{message}\n{excerpt}" if excerpt else message, advice=advice)


class NoCompiler(BuildError):
    """There is no C++ compiler on this machine, or the one that was named is not there."""


class LoadError(RuntimeFailure):
    """An artifact cannot be made callable: bad host program, or a device that is not there."""


class ProgramFileError(RuntimeFailure, ValueError):
    """The file of a program is damaged, none of ours, of a newer version, not signed as it should be, or made for another machine."""


class LaunchError(RuntimeFailure):
    """The driver refused a launch, or the arguments do not fit the kernel's signature."""


class NotRecorded(RuntimeFailure, RuntimeError):
    """A graph is not recorded as a CUDA graph, where the options forbid to run it kernel by kernel."""


class InputError(RuntimeFailure, ValueError):
    """A loaded artifact was called with other inputs than it was compiled for."""


class IndexOutOfRange(_Pickled, IndexError, RuntimeError):
    """A kernel for the CPU met an index out of range: an exception of both kinds that eager's operators raise for one.

    Attributes: kernel, its name; origin, the operator and its place in the source.
    """

    def __init__(self, kernel: str, origin: str) -> None:
        self.kernel, self.origin = kernel, origin
        super().__init__(f"index out of range in {origin or 'an operator'} ({kernel})")


class ResultMismatch(RuntimeFailure, RuntimeError):
    """A library's kernel gave another tensor than the graph was compiled for. It is raised before any kernel reads that tensor.

    Attributes: operator, whose result it is; what, the property that differs; expected and given, its values; places, "file:line in
    function" of the operator in the program, as far as they are known.
    """

    def __init__(self, operator: str, what: str, expected: object, given: object, places: tuple[str, ...] = ()) -> None:
        self.operator, self.what, self.expected, self.given, self.places = operator, what, expected, given, places
        at = f" ({' or '.join(places[:3])}{' ...' * (len(places) > 3)})" if places else ""
        super().__init__(
            f"{operator}{at} gave a tensor of {what} {given} where the graph was compiled for {expected}",
            advice="correct its fake if it is yours (torch.library.register_fake); else keep the function that calls it out of graphs with "
            "torch.compiler.disable, and report the operator with its arguments",
        )


class CacheCorrupt(RuntimeFailure):
    """A stored entry does not have the hash it was written with."""


class CacheForeign(CacheCorrupt):
    """A stored entry is whole, and sealed with another key than this user's."""


class CacheUnsafe(RuntimeFailure):
    """The cache folder or the key of its entries cannot be made, or can be written by others, so that nothing there can be trusted."""


class CacheWarning(UserWarning):
    """The disk cache cannot be used as it should; compilation goes on without. Once per process and reason."""


class RankLost(RuntimeFailure):
    """A rank of the job has ended, or hangs, while others wait for it to decide on a compilation with them."""


class RanksApart(RuntimeFailure):
    """Ranks that decide together are at different places of the program."""

"""Lines to a Program, which runs them without Python in between (csrc/program.c).

Kernels, allocations and what is freed are instructions; what is Python text becomes functions of the registers that it reads, compiled
together. All sizes are settled at once by a function of the symbols, whose results are kept.
"""

from __future__ import annotations

import ctypes
import enum
import linecache
import re
from _ctypes import CFuncPtr
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from tracework_runtime import huge_pages, results
from tracework_runtime._C import Launcher, Program
from tracework_runtime.errors import ArtifactError
from tracework_runtime.host import library
from tracework_runtime.host.lines import (
    WORK,
    Address,
    Allocate,
    Bind,
    Call,
    Extent,
    Free,
    Give,
    Launch,
    Line,
    Native,
    Number,
    Result,
    Return,
    Reuse,
    Take,
    Window,
    input_names,
)

if TYPE_CHECKING:  # an artifact is made of lines
    from tracework_runtime.artifact import Artifact, KernelSource

__all__ = ["MOST_OPERANDS", "NotInterpreted", "host_name", "host_program"]

MOST_OPERANDS = 64
"""Of a kernel for the CPU, as in csrc/program.c."""
_ALL_KEPT, _MOST_KEPT_APART = -1, 31
"""As in csrc/program.c."""
APART = frozenset({"aten::convolution_backward"})
"""Calls whose returned results are small beside what else they make: the gradient of the weights beside that of the images."""
_HELD_WORK = "work "  # no name of a program has a blank
_UNREAD, _NUMBER = -1, -2
_RESULTS = {"void": 0, "i32": 1, "i64": 2}


class _Kind(enum.IntEnum):
    """Of an instruction, as in csrc/program.c."""

    CALL = 0
    ALLOCATE = 1
    LAUNCH = 2
    NATIVE = 3
    SHARE = 4
    FREE = 5
    RETURN = 6
    LIBRARY = 7
    TABLE = 8


class NotInterpreted(Exception):
    """A kernel that the interpreter cannot call; the host program runs as Python."""


def host_program(
    artifact: Artifact, namespace: dict[str, Any], watched: frozenset[int] = frozenset()
) -> Callable[[list[Any]], tuple[Any, ...]]:
    """`call(args)` of an artifact with host_lines.

    namespace: the globals of its host_source, with its kernels. watched: the numbers of lines, with which `line_begins` and `line_ends` of the
    namespace are called around them. Raises NotInterpreted, and ArtifactError for lines that make no program.
    """
    kernels = {kernel.name: kernel for kernel in artifact.kernels}
    return _Assembler(kernels, namespace, artifact.key, watched).assemble(artifact.host_lines)


class _Assembler:
    """Makes one program."""

    def __init__(
        self, kernels: Mapping[str, KernelSource], namespace: dict[str, Any], key: str, watched: frozenset[int] = frozenset()
    ) -> None:
        self._kernels, self._namespace, self._key, self._watched = kernels, namespace, key, watched
        self._registers: dict[str, int] = {}
        self._live: set[str] = set()
        self._symbols: list[str] = []
        self._numbers: dict[Extent, int] = {0: 0}
        self._shapes: dict[tuple[Extent, ...], int] = {}
        self._functions: list[str] = []
        self._code: list[tuple[Any, ...]] = []
        self._settle_after = 0
        self._viewed: set[str] = set()
        self._kept: set[str] = set()

    def assemble(self, lines: Sequence[Line]) -> Callable[[list[Any]], tuple[Any, ...]]:
        """The program. In its code, functions are names until all are compiled."""
        names = input_names(lines)
        if not isinstance(lines[-1], Return):
            raise ArtifactError("a host program ends with what it returns")
        self._kept = _kept(lines)
        self._viewed = _viewed(lines, self._kept)
        for name in names:
            self._write(name)
        rest = self._bind(lines[1:])
        self._settle_after = len(self._code)
        if matrices := self._matrices(names, lines):
            self._add(_Kind.CALL, huge_pages.ReadAgain(), map(self._read, matrices))
        for number, line in enumerate(rest, len(lines) - len(rest)):
            if number in self._watched:
                self._python([f"line_begins({number})"], (), ())
                self._line(line)
                self._python([f"line_ends({number})"], (), ())
            else:
                self._line(line)
        settle = self._function(self._symbols, [f"return ({_items(self._numbers)}), ({_items(map(_shape, self._shapes))})"])
        functions = self._compiled()
        code = tuple((kind, functions[f] if isinstance(f, str) else f, *others) for kind, f, *others in self._code)
        counts = len(names), len(self._registers), len(self._numbers), len(self._shapes)
        symbols = tuple(self._registers[s] for s in self._symbols)
        try:
            return Program(*counts, symbols, self._settle_after, functions[settle], code)
        except (TypeError, ValueError) as error:
            raise ArtifactError(f"a host program that does not fit its kernels: {error}") from error

    def _matrices(self, names: Sequence[str], lines: Sequence[Line]) -> list[str]:
        """The inputs that kernels read whole at the speed of memory."""
        found: dict[str, None] = {}
        for line in lines:
            kernel = self._kernels.get(line.function) if isinstance(line, Launch) else None
            if isinstance(line, Launch) and kernel is not None:
                operands = [line.operands[n] for n in kernel.launch.get("matrices", ())]
                found |= {o.name: None for o in operands if isinstance(o, Address) and o.name in names}
        return list(found)

    def _bind(self, lines: Sequence[Line]) -> Sequence[Line]:
        """Reads all symbols at once; the lines behind."""
        bound = [line for line in lines if isinstance(line, Bind)]
        if list(lines[: len(bound)]) != bound:
            raise ArtifactError("a host program that binds a symbol late")
        if bound:
            reads = dict.fromkeys(name for line in bound for name in line.reads if name not in {b.symbol for b in bound})
            self._symbols = [line.symbol for line in bound]
            self._python([f"{line.symbol} = {line.text}" for line in bound], tuple(reads), self._symbols)
        return lines[len(bound) :]

    # registers

    def _read(self, name: str) -> int:
        if name not in self._live:
            raise ArtifactError(f"a host program reads {name!r} before it is made, or after it is freed")
        return self._registers[name]

    def _write(self, name: str) -> int:
        self._live.add(name)
        return self._registers.setdefault(name, len(self._registers))

    def _number(self, value: Extent) -> int:
        return self._numbers.setdefault(value, len(self._numbers))

    def _shape_number(self, shape: tuple[Extent, ...]) -> int:
        return self._shapes.setdefault(shape, len(self._shapes))

    # instructions

    def _add(
        self,
        kind: _Kind,
        function: Any = None,
        operands: Iterable[int] = (),
        results: Iterable[int] = (),
        *,
        extra: Any = None,
        address: int = 0,
        result: int = 0,
    ) -> None:
        self._code.append((int(kind), function, extra, tuple(operands), tuple(results), address, result))

    def _line(self, line: Line) -> None:
        match line:
            case Take(size):
                text = [f"work = take({size})", "at, views = work.address, work.windows(windows)"]
                self._python(text, (), (WORK, "views", _HELD_WORK), ("at", "views", "work"))
            case Give():
                self._python(["give(work)"], (_HELD_WORK,), (), parameters=("work",))
            case Number():
                self._python([line.text], (line.given,), (line.name,))
            case Allocate(name, _, dtype, sizes, strides):
                shapes = self._shape_number(sizes), self._shape_number(strides)
                kept = _ALL_KEPT if name in self._kept else 0
                function = getattr(results, line.function)
                self._add(_Kind.ALLOCATE, function, shapes, [self._write(name)], extra=getattr(torch, dtype), result=kept)
            case Reuse(new, old, view):
                if view and new in self._viewed:
                    self._python([f"{new} = {old}{view}"], (old, *self._symbols), (new,))
                else:
                    self._add(_Kind.SHARE, None, [self._read(old)], [self._write(new)])
            case Launch():
                self._launch(line)
            case Call():
                if (native := _native_form(line, self._kept)) is not None:
                    self._native(native)
                else:
                    self._python(line.text, line.reads, line.writes, apart=not APART.isdisjoint(line.operators))
            case Free(names):
                self._add(_Kind.FREE, None, map(self._read, names))
                self._live.difference_update(names)
            case Return():
                self._return(line)
            case _:
                raise ArtifactError(f"a host program with a line {line} where none may be")

    def _return(self, line: Return) -> None:
        made = {value: f"result {n}" for n, value in enumerate(line.values) if value not in self._live}
        if made:
            self._python([], line.reads, tuple(made.values()), tuple(made))
        self._add(_Kind.RETURN, None, [self._read(made.get(value, value)) for value in line.values])

    def _launch(self, line: Launch) -> None:
        kernel, function = self._kernels.get(line.function), self._namespace.get(line.function)
        if kernel is None:
            raise ArtifactError(f"a host program calls {line.function!r}, which is no kernel of its artifact")
        operands: list[int] = []
        for operand in line.operands:
            at, number = (self._read(operand.name), operand.offset) if isinstance(operand, Address) else (-1, operand)
            operands += [at, self._number(number)]
        if isinstance(function, Launcher):
            self._add(_Kind.LAUNCH, function, operands)
            return
        if kernel.launch.get("table") and isinstance(function, CFuncPtr):
            self._add(_Kind.TABLE, None, operands, address=ctypes.cast(function, ctypes.c_void_p).value or 0)
            return
        result = _RESULTS.get(kernel.launch.get("result", "void"))
        whole = all(t.startswith("*") or t == "i64" for t in kernel.signature) and len(kernel.signature) == len(line.operands)
        if not whole or result is None or len(line.operands) > MOST_OPERANDS or not isinstance(function, CFuncPtr):
            raise NotInterpreted(line.function)
        failure = self._function(["failed"], [line.failure]) if line.failure else None
        address = ctypes.cast(function, ctypes.c_void_p).value or 0
        self._add(_Kind.NATIVE, failure, operands, address=address, result=result if failure else 0)

    def _native(self, call: Native) -> None:
        """By torch's C function, or else as text, where registers hold memory, whatever the shape of its tensor."""
        kind, _, index = call.device.partition(":")
        windows = [a.value for a in call.arguments if isinstance(a.value, Window)]
        operands = [v for w in windows for v in (self._read(w.name), self._number(_bytes(w)))]
        shapes = tuple((self._lengths(w), library.dtype_code(w.dtype)) for w in windows)
        given: list[tuple[int, object]] = []
        place = 0
        for a in call.arguments:
            number = library.ARGUMENT_KINDS[a.kind]
            if isinstance(a.value, Window):
                given.append((number, place))
                place += 1
            else:
                given.append((number, tuple(map(self._number, a.value)) if isinstance(a.value, tuple) else a.value))
        reads = tuple(dict.fromkeys("views" if w.name == WORK else w.name for w in windows))
        text = _call_text(call, [w.text if w.name == WORK else _strided(w) for w in windows])
        late = _Late(f"lambda {', '.join((*reads, *self._symbols))}: {text}", self._namespace)
        registers = [self._read(name) for name in (*reads, *self._symbols)]
        made = tuple(
            (
                self._write(r.name) if r.name else _UNREAD if r.dtype else _NUMBER,
                self._lengths(r),
                library.dtype_code(r.dtype) or 0,
            )
            for r in call.results
        )
        extra = shapes, tuple(given), made, library.device_code(kind), int(index or 0)
        self._add(_Kind.LIBRARY, late, operands, registers, extra=extra, address=library.address(kind, call.function))

    def _lengths(self, of: Window | Result) -> tuple[int, ...]:
        return tuple(map(self._number, (*of.sizes, *of.strides)))

    # Python

    def _python(
        self,
        text: Sequence[str],
        reads: Sequence[str],
        writes: Sequence[str],
        values: Sequence[str] = (),
        parameters: Sequence[str] = (),
        apart: bool = False,
    ) -> None:
        """Statements as a function of the registers that they read, under the names `parameters` where these are others.

        apart: those results that are returned are small beside the others.
        """
        values = values or writes
        back = [f"return {values[0] if len(values) == 1 else _items(values)}"] if values else []
        function = self._function(parameters or reads, [*text, *back])
        registers = [self._read(name) for name in reads]
        returned = [n for n, name in enumerate(writes) if name in self._kept]
        kept = _ALL_KEPT if returned else 0
        if apart and len(returned) < len(writes) <= _MOST_KEPT_APART:
            kept = sum(1 << n for n in returned)
        self._add(_Kind.CALL, function, registers, [self._write(name) for name in writes], result=kept)

    def _function(self, parameters: Iterable[str], text: Sequence[str]) -> str:
        name = f"line {len(self._functions)}"
        body = "".join(f"\n    {statement}" for statement in text)
        self._functions.append(f"def line_{len(self._functions)}({', '.join(parameters)}):{body}\n")
        return name

    def _compiled(self) -> dict[str, Any]:
        source = "\n\n".join(self._functions)
        file = host_name(self._key, " watched lines" if self._watched else " lines")
        linecache.cache[file] = (len(source), None, source.splitlines(True), file)
        made: dict[str, Any] = {}
        exec(compile(source, file, "exec"), self._namespace, made)
        return {f"line {n}": made[f"line_{n}"] for n in range(len(self._functions))}


def host_name(key: str, part: str = "") -> str:
    """The file that tracebacks name for a host program's text, or a part of it."""
    return f"<tracework host {key[:12]}{part}>"


class _Late:
    """A function that is compiled when it is called first: few are."""

    def __init__(self, text: str, namespace: dict[str, Any]) -> None:
        self._text, self._namespace = text, namespace
        self._function: Callable[..., Any] | None = None

    def __call__(self, *args: Any) -> Any:
        if self._function is None:
            self._function = eval(compile(self._text, "<tracework host late>", "eval"), self._namespace)
        return self._function(*args)


_KEYWORD = re.compile(r"\w+=[^=]")


def _viewed(lines: Sequence[Line], kept: set[str]) -> set[str]:
    """The names that are needed as tensors, not only as memory."""
    found: set[str] = set()
    for line in reversed(lines):
        if isinstance(line, Return) or isinstance(line, Call) and _native_form(line, kept) is None:
            found.update(line.reads)
        elif isinstance(line, Reuse) and line.new in found and not line.view:
            found.add(line.old)
    return found


def _kept(lines: Sequence[Line]) -> set[str]:
    """The names whose memory is returned, as far as the lines say: not where a call gives the memory of what it reads."""
    found: set[str] = set()
    for line in reversed(lines):
        if isinstance(line, Return):
            found.update(line.reads)
        elif isinstance(line, Reuse) and line.new in found:
            found.add(line.old)
    return found


def _native_form(line: Call, kept: set[str]) -> Native | None:
    """A call of torch's C function, where torch here has it. What is returned is made by Python, which a recording asks where to."""
    call = line.native
    if call is None or not kept.isdisjoint(line.writes) or not library.address(call.device.partition(":")[0], call.function):
        return None
    tensors: list[Window | Result] = [
        *(a.value for a in call.arguments if isinstance(a.value, Window)),
        *(r for r in call.results if r.name),
    ]
    known = all(library.dtype_code(t.dtype) is not None and len(t.sizes) <= library.MOST_DIMENSIONS for t in tensors)
    return call if known else None


def _call_text(call: Native, tensors: list[str]) -> str:
    """An expression of the results that somebody reads."""
    given = [a.text.replace("{}", tensors.pop(0)) if isinstance(a.value, Window) else a.text for a in call.arguments]
    texts = sorted(filter(None, given), key=lambda text: _KEYWORD.match(text) is not None)
    text = f"{call.operator}({', '.join(texts)})"
    read = [(n, r) for n, r in enumerate(call.results) if r.name]
    if not call.is_tuple:
        return read[0][1].check.replace("{}", text) if read else text
    if len(read) == 1:
        return read[0][1].check.replace("{}", f"{text}[{read[0][0]}]")
    return f"(lambda made: ({_items(r.check.replace('{}', f'made[{n}]') for n, r in read)}))({text})"


def _bytes(window: Window) -> Extent:
    """How far behind the first byte of its name a window begins."""
    size = getattr(torch, window.dtype).itemsize
    return (
        window.first + size * window.offset if isinstance(window.offset, int) else f"{window.first} + {size} * ({window.offset})"
    )


def _strided(window: Window) -> str:
    offset = f"{window.name}.storage_offset() + {window.offset}"
    return f"{window.name}.as_strided({_shape(window.sizes)}, {_shape(window.strides)}, {offset})"


def _items(values: Iterable[Any]) -> str:
    return "".join(f"{value}, " for value in values)


def _shape(extents: Sequence[Extent]) -> str:
    return f"({_items(extents)})"

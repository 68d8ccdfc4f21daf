"""The lines of a host program as the text of a Python module that allocates, calls kernels and library functions, and returns.

`call(args)` takes the graph's inputs as one list, which it empties, and returns a tuple. Everything that can be looked
up once is a global of the module; a kernel call is one foreign call with plain integers. What a library call gives is compared with what
the graph was compiled for before anything reads it (tracework_runtime.results).
"""

from collections.abc import Iterable, Sequence

from tracework_runtime import KernelSource
from tracework_runtime.host.lines import (
    CALL,
    WORK,
    Address,
    Allocate,
    Bind,
    Call,
    Free,
    Give,
    Inputs,
    Launch,
    Line,
    Number,
    Return,
    Reuse,
    Take,
)

from ...ir.cores import DIGEST, PACKED, PACKED_CALLS
from .lines import DTYPES, HostProgram

HEADER = '''import torch
from torch import device, empty, empty_strided
from torch import {dtypes}
from tracework_runtime.errors import IndexOutOfRange
from tracework_runtime.results import empty_cpu, empty_cuda, expected, in_memory, large_cpu, restride, unwritten
inf, nan = float("inf"), float("nan")


def out_of_range(failed, name, origins):
    """Raises for the first check of an index, of those that the bits name, that failed in a kernel."""
    number = (failed & -failed).bit_length() - 1
    raise IndexOutOfRange(name, origins[number])

'''

WORKSPACES = {
    "cpu": "from tracework_runtime.workspace import give, take, window",
    "cuda": "from tracework_runtime.gpu_workspace import give, take, window",
}


def host_source(program: HostProgram, kernels: Sequence[KernelSource]) -> str:
    """The module. Kernels for the CPU take all addresses as numbers, some of them in a table; others take tensors, too."""
    on_cpu = {k.name for k in kernels if k.language == "cpp"}
    of_tables = {k.name for k in kernels if k.launch.get("table")}
    head = HEADER.format(dtypes=", ".join(DTYPES))
    if any("prims." in v for v in program.globals.values()):
        head = head.replace("import torch\n", "import torch\nfrom tracework_primops import prims\n", 1)
    packed = [start[:-1] for start in PACKED_CALLS if any(v.startswith(start) for v in program.globals.values())]
    if packed:
        head = head.replace(
            "import torch\n", f"import torch\nfrom tracework_runtime.packed import {', '.join(('PackedCalls', *packed))}\n", 1
        )
    placed = any(isinstance(line, Take) for line in program.lines)
    if placed:
        head = head.replace("import torch\n", f"import torch\n{WORKSPACES[program.device]}\n", 1)
    if any(isinstance(line, Launch) and line.function in of_tables for line in program.lines):
        head = head.replace("import torch\n", "import torch\nfrom tracework_runtime.launch.cpp import in_table\n", 1)
    shared = "\n".join(f"{name} = {value}" for name, value in program.globals.items())
    if packed:
        shared = f"{PACKED} = PackedCalls({DIGEST})\n{shared}"
    if placed:
        made = "".join(f"\n        {text}," for text in program.windows)
        shared += f"\n\n\ndef windows(memory, first):\n    return ({made}\n    )"
    body = "\n".join("    " + text for text in _Body(on_cpu, of_tables).texts(program.lines))
    return f"{head}{shared}{CALL}{body}\n"


class _Body:
    """The lines of `call`."""

    def __init__(self, on_cpu: Iterable[str], of_tables: Iterable[str]) -> None:
        self._on_cpu, self._of_tables = frozenset(on_cpu), frozenset(of_tables)
        self._pointers: dict[str, str] = {WORK: "work_at"}
        self._texts: list[str] = []

    def texts(self, lines: Iterable[Line]) -> list[str]:
        for line in lines:
            match line:
                case Inputs(names):
                    self._texts += [f"{', '.join(names)}, = args", "args.clear()"] if names else []
                case Bind(symbol, text, _):
                    self._texts.append(f"{symbol} = {text}")
                case Number():
                    self._texts.append(line.text)
                case Take(size):
                    self._texts += [f"work = take({size})", "work_at, views = work.address, work.windows(windows)"]
                case Allocate(name, _, dtype, sizes, strides):
                    word = dtype if dtype in DTYPES else f"torch.{dtype}"
                    self._texts.append(f"{name} = {line.function}({_tuple(sizes)}, {_tuple(strides)}, {word})")
                case Reuse(new, old, view):
                    self._texts.append(f"{new} = {old}{view}")
                    if old in self._pointers:
                        self._pointers[new] = self._pointers[old]
                case Launch():
                    self._launch(line)
                case Call():
                    self._texts += line.text
                case Free(names):
                    self._texts.append(f"del {', '.join(names)}")
                case Give():
                    self._texts.append("give(work)")
                case Return(values, _):
                    self._texts.append(f"return ({''.join(v + ', ' for v in values)})")
        return self._texts

    def _launch(self, line: Launch) -> None:
        operands = ", ".join(self._operand(line.function, o) for o in line.operands)
        call = f"{line.function}(in_table({operands}))" if line.function in self._of_tables else f"{line.function}({operands})"
        if not line.failure:
            self._texts.append(call)
            return
        named = "failed := " if "failed" in line.failure else ""
        self._texts += [f"if {named}{call}:", f"    {line.failure}"]

    def _operand(self, function: str, operand: Address | int | str) -> str:
        if not isinstance(operand, Address):
            return str(operand)
        if function not in self._on_cpu and operand.name != WORK:
            return operand.name
        if operand.name not in self._pointers:
            self._pointers[operand.name] = f"{operand.name}_p"
            self._texts.append(f"{operand.name}_p = {operand.name}.data_ptr()")
        pointer = self._pointers[operand.name]
        return pointer if operand.offset == 0 and operand.name != WORK else f"{pointer} + {operand.offset}"


def _tuple(values: Sequence[int | str]) -> str:
    return f"({''.join(f'{v}, ' for v in values)})"

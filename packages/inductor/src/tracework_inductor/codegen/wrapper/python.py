"""A KernelPlan as the text of the Python module that allocates, calls kernels and library functions, and returns.

`call(args)` takes the graph's inputs as one list, which it empties, and returns a tuple. Everything that can be looked
up once is a global of the module; a kernel call is one foreign call with plain integers. What a library call gives is compared with what
the graph was compiled for before anything reads it (tracework_runtime.results).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ...ir.buffer import BufferLayout, BufferView, ExternNode
from ...ir.index import Expr, Size, same, same_all
from ...lowering.conv import PACKED_CALL
from ...lowering.cpu_products import GEMM
from ...schedule.graph import alias_root
from ...schedule.plan import ExternKernel, KernelBatch, KernelPlan, LoopKernel, MemoryStep, Output, index_checks

HEADER = '''import torch
from torch import device, empty, empty_strided
from torch import {dtypes}
from tracework_runtime.errors import IndexOutOfRange
from tracework_runtime.results import empty_cpu, empty_cuda, expected, restride, unwritten
inf, nan = float("inf"), float("nan")


def out_of_range(failed, name, origins):
    """Raises for the first check of an index, of those that the bits name, that failed in a kernel."""
    number = (failed & -failed).bit_length() - 1
    raise IndexOutOfRange(name, origins[number])

'''

DTYPES = "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 complex64 complex128".split()


class PythonWrapper:
    """Writes one module."""

    def __init__(self, plan: KernelPlan, function_names: Mapping[str, str]) -> None:
        self.plan = plan
        self.program = plan.program
        self.functions = function_names
        self.lines: list[str] = []
        self.globals: dict[str, str] = {}
        self.pointers: dict[str, str] = {}
        self.variables: dict[str, str] = {}
        self.symbols: set[str] = set()
        self.workspace = plan.memory.workspace
        # their memory lives as long as their new names
        self.renamed = {old for step in plan.memory.steps for _, old in step.reuse}
        self.gpus = {b.layout.device for b in self.program.buffers.values() if b.layout.device.type == "cuda"}
        self.loaded = {name for kernel in plan.kernels if not isinstance(kernel, ExternKernel) for name in kernel.reads}
        self.windows: dict[str, int] = {}
        self.counted: set[str] = set()  # buffers whose tensors torch has written to, so that it counts a version

    def render(self) -> str:
        """The module."""
        self._inputs()
        if self.workspace.size:
            self.lines += [f"work = take({self.workspace.size})", "work_at, views = work.address, work.windows(windows)"]
        ended = self._ended_inputs()
        for n, (kernel, step) in enumerate(zip(self.plan.kernels, self.plan.memory.steps, strict=True)):
            if isinstance(kernel, ExternKernel):
                self._extern(kernel, step)
            else:
                self._loop_kernel(kernel, step)
            self._free(step)
            if n in ended:
                self.lines.append(f"del {', '.join(ended[n])}")
        if self.workspace.size:
            self.lines.append("give(work)")
        if counted := self._counted_results():
            self.lines.append(f"unwritten({', '.join(map(self._name, counted))})")
        self.lines.append(f"return ({''.join(self._output(o) + ', ' for o in self.program.outputs)})")
        body = "\n".join("    " + line for line in self.lines)
        head = HEADER.format(dtypes=", ".join(DTYPES))
        if any("prims." in v for v in self.globals.values()):
            head = head.replace("import torch\n", "import torch\nfrom tracework_primops import prims\n", 1)
        if any(v.startswith(PACKED_CALL) for v in self.globals.values()):
            head = head.replace("import torch\n", "import torch\nfrom tracework_runtime.packed import packed_convolution\n", 1)
        if self.workspace.size:
            head = head.replace("import torch\n", "import torch\nfrom tracework_runtime.workspace import give, take, window\n", 1)
        shared = "\n".join(f"{name} = {value}" for name, value in self.globals.items())
        if self.workspace.size:
            made = "".join(f"\n        {text}," for text in self.windows)
            shared += f"\n\n\ndef windows(memory, first):\n    return ({made}\n    )"
        return f"{head}{shared}\n\n\ndef call(args):\n{body}\n"

    def _ended_inputs(self) -> dict[int, list[str]]:
        """Kernel number -> inputs that nobody needs after it: what was saved for a backward is given back early."""
        buffers = self.program.buffers
        kept = {alias_root(buffers, o.buffer) for o in self.program.outputs if o.buffer is not None}
        last: dict[str, int] = {}
        for n, kernel in enumerate(self.plan.kernels):
            for name in (*kernel.reads, *kernel.writes):
                last[alias_root(buffers, name)] = n
        ended: dict[int, list[str]] = {}
        for number, name in enumerate(self.program.inputs):
            if name in last and name not in kept and number not in self.program.static_inputs:
                ended.setdefault(last[name], []).append(name)
        return ended

    def _shared(self, text: str, prefix: str = "f") -> str:
        """A global that holds the value of `text`."""
        for name, known in self.globals.items():
            if known == text:
                return name
        name = f"{prefix}{len(self.globals)}"
        self.globals[name] = text
        return name

    # inputs and outputs

    def _inputs(self) -> None:
        if self.program.inputs:
            self.lines.append(f"{', '.join(self.program.inputs)}, = args")
            self.lines.append("args.clear()")
        for name in self.program.inputs:
            expr = self.program.size_inputs.get(name)
            if isinstance(expr, Expr) and type(expr).__name__ == "Symbol":
                self._bind(str(expr), name)
        for name in self.program.inputs:
            buffer = self.program.buffers.get(name)
            if buffer is not None:
                self._bind_sizes(name, buffer.layout)

    def _bind(self, symbol: str, text: str) -> None:
        if symbol not in self.symbols:
            self.symbols.add(symbol)
            self.lines.append(f"{symbol} = {text}")

    def _bind_sizes(self, name: str, layout: BufferLayout) -> None:
        for kind, values in (("shape", layout.sizes), ("stride()", layout.strides)):
            for d, value in enumerate(values):
                if isinstance(value, Expr) and type(value).__name__ == "Symbol":
                    self._bind(str(value), f"{name}.{kind}[{d}]")

    def _output(self, o: Output) -> str:
        if o.buffer is None:
            return _literal(o.value)
        layout = self.program.buffers[alias_root(self.program.buffers, o.buffer)].layout
        name = self._name(o.buffer)
        if same_all(o.sizes, layout.sizes) and same_all(o.strides, layout.strides) and same(o.offset, 0):
            return name
        return f"{name}.as_strided({_tuple(o.sizes)}, {_tuple(o.strides)}, {self._offset(o.buffer, o.offset)}).detach()"

    def _offset(self, buffer: str, offset: Size) -> str:
        root = self.program.buffers[alias_root(self.program.buffers, buffer)]
        if root.kind == "input":
            base = f"{root.name}.storage_offset()"
            return base if same(offset, 0) else f"{base} + {offset}"
        return str(offset)

    def _counted_results(self) -> list[str]:
        """The buffers among the results that were made here, and that torch counts writes to."""
        buffers = self.program.buffers
        roots = dict.fromkeys(alias_root(buffers, o.buffer) for o in self.program.outputs if o.buffer is not None)
        return [root for root in roots if root in self.counted and buffers[root].kind != "input"]

    def _name(self, buffer: str) -> str:
        root = alias_root(self.program.buffers, buffer)
        if root in self.workspace.offsets:
            layout = self.program.buffers[root].layout
            return self._window(root, layout.sizes, layout.strides, 0)
        return self.variables.get(root, root)

    def _window(self, root: str, sizes: Sequence[Size], strides: Sequence[Size], offset: Size) -> str:
        """A tensor over a buffer of the workspace, made once for each workspace."""
        layout = self.program.buffers[root].layout
        at, size = f"first + {self.workspace.offsets[root]}", layout.dtype.itemsize * int(layout.elements())
        text = f"window(memory, {at}, {size}, {_dtype(layout.dtype)}, {_tuple(sizes)}, {_tuple(strides)}, {offset})"
        return f"views[{self.windows.setdefault(text, len(self.windows))}]"

    # kernels

    def _loop_kernel(self, kernel: LoopKernel | KernelBatch, step: MemoryStep) -> None:
        self._allocate(step)
        pointers = [self._pointer(b) for b in kernel.buffers]
        function = self.functions[kernel.name]
        arguments = ", ".join([*pointers, *map(str, kernel.sizes)])
        checks = index_checks(kernel) if kernel.device.type == "cpu" else ()
        if checks:
            origins = self._shared(repr(tuple(check.origin for check in checks)), "o")
            self.lines.append(f"if failed := {function}({arguments}):")
            self.lines.append(f"    out_of_range(failed, {function!r}, {origins})")
        else:
            self.lines.append(f"{function}({arguments})")

    def _pointer(self, buffer: str) -> str:
        root = alias_root(self.program.buffers, buffer)
        device = self.program.buffers[root].layout.device
        if device.type != "cpu":
            return self._name(buffer)
        if root in self.workspace.offsets:
            return f"work_at + {self.workspace.offsets[root]}"
        if root not in self.pointers:
            self.pointers[root] = f"{self._name(root)}_p"
            self.lines.append(f"{self.pointers[root]} = {self._name(root)}.data_ptr()")
        return self.pointers[root]

    def _allocate(self, step: MemoryStep, empty: Callable[[BufferLayout], str] | None = None) -> None:
        for name in step.allocate:
            if self.program.buffers[name].kind == "computed" and name not in self.workspace.offsets:
                self.lines.append(f"{name} = {(empty or self._empty)(self.program.buffers[name].layout)}")
        for new, old in step.reuse:
            if new in self.workspace.offsets:
                continue
            if old in self.counted:
                self.counted.add(new)
            a, b = self.program.buffers[new].layout, self.program.buffers[old].layout
            equal = same_all(a.sizes, b.sizes) and same_all(a.strides, b.strides)
            # an output is nobody's view: its own views have it as their base
            view = "" if equal else f".as_strided({_tuple(a.sizes)}, {_tuple(a.strides)}, 0).detach()"
            self.lines.append(f"{new} = {self._name(old)}{view}")
            if old in self.pointers:
                self.pointers[new] = self.pointers[old]

    def _empty(self, layout: BufferLayout) -> str:
        """Memory that a kernel fills. A host program with one GPU runs with that as the current one."""
        if layout.device.type == "cpu" or layout.device.type == "cuda" and len(self.gpus) == 1:
            return f"empty_{layout.device.type}({_tuple(layout.sizes)}, {_tuple(layout.strides)}, {_dtype(layout.dtype)})"
        return self._eager_empty(layout)

    def _eager_empty(self, layout: BufferLayout) -> str:
        """Memory that the program sees as it is, which torch fills where it is told to."""
        device = self._shared(f"device({str(layout.device)!r})", "d")
        return f"empty_strided({_tuple(layout.sizes)}, {_tuple(layout.strides)}, dtype={_dtype(layout.dtype)}, device={device})"

    def _free(self, step: MemoryStep) -> None:
        """Names are dropped as soon as nobody needs them, so that torch's allocator can hand the memory out again."""
        taken = [old for _, old in step.reuse]
        ended = [b for b in step.free if b not in self.renamed]
        gone = [self._name(b) for b in (*ended, *taken) if b not in self.workspace.offsets]
        if gone:
            self.lines.append(f"del {', '.join(gone)}")

    # library calls

    def _extern(self, kernel: ExternKernel, step: MemoryStep) -> None:
        node = kernel.node
        if node.target == "empty":
            self._allocate(step, self._eager_empty)
            return
        if node.target == GEMM:
            self._gemm(node, step)
            return
        arguments = [self._argument(a) for a in node.args]
        arguments += [f"{k}={self._argument(v)}" for k, v in node.kwargs]
        if node.out_form is not None and self._dense(node):
            self._allocate_extern(step)
            function = self._shared(node.out_form)
            self.counted.add(str(node.outputs[0]))
            call = f"{function}({', '.join([*arguments, f'out={self._name(str(node.outputs[0]))}'])})"
            self.lines.append(self._as_expected(node, str(node.outputs[0]), call, is_own=True))
            return
        function = "restride" if node.target == "restride" else self._shared(node.target)
        if node.mutates is not None:
            self.counted.add(alias_root(self.program.buffers, node.mutates))
        elif node.target.startswith("prims.") or not kernel.reads:  # eager rules, and torch's makers, fill memory that they make
            self.counted.update(name for name in node.outputs if name is not None)
        call = f"{function}({', '.join(arguments)})"
        if not kernel.reads and not node.tuple_result:
            call += ".detach()"  # torch's windows are parts of longer ones
        self._results(node, call)

    def _gemm(self, node: ExternNode, step: MemoryStep) -> None:
        """A product by our own kernel: addresses, strides and sizes."""
        self._allocate_extern(step)
        a, b, addend = node.args
        out = str(node.outputs[0])
        (m, k), n = a.sizes, b.sizes[1]
        row = addend.strides[0] if addend is not None and len(addend.sizes) == 2 and not same(addend.sizes[0], 1) else 0
        added = self._address(addend) if addend is not None else "None"
        operands = [self._address(a), *a.strides, self._address(b), *b.strides, added, row, self._pointer(out), n, m, n, k]
        self.lines += [f"if {GEMM}({', '.join(map(str, operands))}):", "    raise MemoryError('a matrix product')"]

    def _address(self, view: BufferView) -> str:
        """Of the first element of a window on float32."""
        pointer = self._pointer(view.buffer)
        return pointer if same(view.offset, 0) else f"{pointer} + 4 * ({view.offset})"

    def _dense(self, node: ExternNode) -> bool:
        return node.outputs[0] is not None

    def _allocate_extern(self, step: MemoryStep) -> None:
        self._allocate(MemoryStep((), step.reuse, ()))
        for name in (b for b in step.allocate if b not in self.workspace.offsets):
            self.lines.append(f"{name} = {self._empty(self.program.buffers[name].layout)}")

    def _results(self, node: ExternNode, call: str) -> None:
        if not node.tuple_result:
            name = node.outputs[0]
            if name is None or node.mutates is not None:  # an input that is written is what it was
                self.lines.append(call)
            else:
                self.lines.append(f"{name} = {self._as_expected(node, name, call)}")
            return
        names = [n if n is not None else "_" for n in node.outputs]
        self.lines.append(f"{', '.join(names)}, = {call}")
        if "_" in names:
            self.lines.append("del _")
        for name in node.outputs:
            if name is not None:
                self.lines.append(f"{name} = {self._as_expected(node, name, name)}")

    def _as_expected(self, node: ExternNode, name: str, text: str, *, is_own: bool = False) -> str:
        """A library's result, once it is known to be what kernels take it for. is_own: it was given memory to write to."""
        if node.target == "restride":
            return text
        layout = self.program.buffers[name].layout
        device = None if self._is_random_state(name) else self._shared(f"device({str(layout.device)!r})", "d")
        own = ", is_own=True" if is_own else ""
        check = self._shared(f"expected({_dtype(layout.dtype)}, {device}, {node.operator!r}, places{own})", "e")
        return f"{check}({text}, {_tuple(layout.sizes)}, {_tuple(layout.strides)})"

    def _is_random_state(self, name: str) -> bool:
        """Whether a result may be the seed or the offset of an attention kernel for its backward: the library keeps them on the CPU, or on
        the GPU while a CUDA graph is recorded."""
        layout = self.program.buffers[name].layout
        small = isinstance(count := layout.numel(), int) and count <= 2
        return small and layout.dtype in (torch.int64, torch.uint64) and layout.device.type == "cuda" and name not in self.loaded

    def _argument(self, arg: Any) -> str:
        if isinstance(arg, BufferView):
            return self._view(arg)
        if isinstance(arg, torch.device):
            return self._shared(f"device({str(arg)!r})", "d")
        if isinstance(arg, tuple):
            return f"({''.join(self._argument(a) + ', ' for a in arg)})"
        if isinstance(arg, list):
            return f"[{', '.join(self._argument(a) for a in arg)}]"
        return _literal(arg)

    def _view(self, view: BufferView) -> str:
        root = self.program.buffers[alias_root(self.program.buffers, view.buffer)]
        layout = root.layout
        if root.name in self.workspace.offsets:
            return self._window(root.name, view.sizes, view.strides, view.offset)
        name = self._name(view.buffer)
        if same_all(view.sizes, layout.sizes) and same(view.offset, 0) and same_all(view.strides, layout.strides):
            return name
        if same(view.offset, 0) and len(view.sizes) == 2 == len(layout.sizes):
            if same_all(view.sizes, layout.sizes[::-1]) and same_all(view.strides, layout.strides[::-1]):
                return f"{name}.t()"
        return f"{name}.as_strided({_tuple(view.sizes)}, {_tuple(view.strides)}, {self._offset(view.buffer, view.offset)})"


def _dtype(dtype: torch.dtype) -> str:
    name = str(dtype).removeprefix("torch.")
    return name if name in DTYPES else str(dtype)


def _tuple(values: Sequence[Size]) -> str:
    return f"({''.join(f'{v}, ' for v in values)})"


def _literal(value: Any) -> str:
    if isinstance(value, torch.dtype):
        return str(value)
    if isinstance(value, (torch.memory_format, torch.layout)):
        return str(value)
    if isinstance(value, Expr):
        return f"({value})"
    return repr(value)

"""A KernelPlan as the lines of its host program (tracework_runtime.host.lines), and the globals that their texts name."""

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from tracework_runtime.host.lines import (
    WORK,
    Address,
    Allocate,
    Argument,
    Bind,
    Call,
    Free,
    Give,
    Inputs,
    Launch,
    Line,
    Native,
    Number,
    Result,
    Return,
    Reuse,
    Take,
    Window,
)

from ... import _torch
from ...ir.buffer import NUMBER, BufferLayout, BufferView, ExternNode
from ...ir.cores import DEPTHWISE, GEMM, PACKED, PACKED_CALLS
from ...ir.index import Expr, Size, constant_size, same, same_all
from ...schedule.graph import alias_root, ended_inputs, read_buffers
from ...schedule.operators import layout_symbols, operators_of
from ...schedule.plan import (
    CoreKernel,
    ExternKernel,
    KernelBatch,
    KernelPlan,
    LoopKernel,
    MemoryStep,
    Output,
    index_checks,
)
from ...schedule.tables import row_of

DTYPES = "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 complex64 complex128".split()
"""What texts name without `torch.`."""


@dataclasses.dataclass(frozen=True)
class HostProgram:
    """Lines, globals by name, the tensors over the workspace, each as text, and the kind of the workspace's device.

    spans: of each kernel of the plan, the first of the lines that are its, and the one behind the last.
    """

    lines: tuple[Line, ...]
    globals: Mapping[str, str]
    windows: tuple[str, ...]
    device: str
    spans: tuple[tuple[int, int], ...]


def host_program(plan: KernelPlan, function_names: Mapping[str, str]) -> HostProgram:
    """The host program of a plan whose kernels have these names."""
    return _Builder(plan, function_names).build()


class _Builder:
    """Writes one program."""

    def __init__(self, plan: KernelPlan, function_names: Mapping[str, str]) -> None:
        self.plan = plan
        self.program = plan.program
        self.functions = function_names
        self.lines: list[Line] = []
        self.globals: dict[str, str] = {}
        self.names: set[str] = set()  # what the lines have made so far
        self.symbols: set[str] = set()
        self.in_memory = {str(s) for k in plan.kernels if isinstance(k, LoopKernel) for s in k.numbers}
        self.workspace = plan.memory.workspace
        # their memory lives as long as their new names
        self.renamed = {old for step in plan.memory.steps for _, old in step.reuse}
        self.gpus = {b.layout.device for b in self.program.buffers.values() if b.layout.device.type == "cuda"}
        self.loaded = {name for kernel in plan.kernels if not isinstance(kernel, ExternKernel) for name in kernel.reads}
        self.read = read_buffers(self.program, plan.kernels)
        self.shown = self._shown()
        self.windows: dict[str, int] = {}
        self.counted: set[str] = set()  # buffers whose tensors torch has written to, so that it counts a version

    def build(self) -> HostProgram:
        """The program."""
        self._inputs()
        if self.workspace.size:
            self.lines.append(Take(self.workspace.size))
            self.names |= {WORK, "views"}
        self._look()
        ended = ended_inputs(self.program, self.plan.kernels)
        spans = []
        for n, (kernel, step) in enumerate(zip(self.plan.kernels, self.plan.memory.steps, strict=True)):
            first = len(self.lines)
            if isinstance(kernel, ExternKernel):
                self._extern(kernel, step)
            else:
                self._loop_kernel(kernel, step)
            spans.append((first, len(self.lines)))
            self._free(step)
            if n in ended:
                self.lines.append(Free(tuple(ended[n])))
        if self.workspace.size:
            self.lines.append(Give())
        if counted := self._counted_results():
            self._call(f"unwritten({', '.join(map(self._name, counted))})")
        values = tuple(map(self._output, self.program.outputs))
        self.lines.append(Return(values, self._reads(*values)))
        device = next((self.program.buffers[name].layout.device.type for name in self.workspace.offsets), "cpu")
        return HostProgram(tuple(self.lines), self.globals, tuple(self.windows), device, tuple(spans))

    def _reads(self, *texts: str) -> tuple[str, ...]:
        """The names of the program that texts mention."""
        words = dict.fromkeys(word for text in texts for word in _WORD.findall(text))
        return tuple(word for word in words if word in self.names)

    def _call(
        self,
        *text: str,
        writes: Sequence[str] = (),
        node: ExternNode | None = None,
        devices: Iterable[torch.device] = (),
        native: Native | None = None,
    ) -> None:
        reads = self._reads(*text)
        operators: tuple[str, ...] = ()
        changes: tuple[str, ...] = ()
        if node is not None:
            operators = operators_of(self.program, node)
            changed = [node.mutates] if node.mutates is not None else node.outputs if not writes else ()
            changes = tuple(name for b in changed if b is not None and (name := self._root(b)) in reads)
            devices = {self._layout(b).device for b in (*node.reads, *node.writes) if b in self.program.buffers}
        symbols = {str(s) for name in writes for s in layout_symbols(self._layout(name))}
        where = tuple(sorted(map(str, devices)))
        self.lines.append(Call(text, reads, tuple(writes), operators, changes, where, tuple(sorted(symbols)), native))
        self.names.update(writes)

    def _root(self, buffer: str) -> str:
        """The name of the memory that a buffer is, or lies in."""
        return alias_root(self.program.buffers, buffer)

    def _layout(self, buffer: str) -> BufferLayout:
        return self.program.buffers[self._root(buffer)].layout

    def _written(self, kernel: LoopKernel | CoreKernel | KernelBatch) -> tuple[str, ...]:
        """The names whose memory a kernel writes to."""
        writes = kernel.writes
        roots = dict.fromkeys(self._root(b) for b in kernel.buffers if b in writes)
        return tuple(root for root in roots if root not in self.workspace.offsets)

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
        self.lines.append(Inputs(tuple(self.program.inputs)))
        self.names.update(self.program.inputs)
        for name in self.program.inputs:
            expr = self.program.size_inputs.get(name)
            if isinstance(expr, Expr) and type(expr).__name__ == "Symbol" and str(expr) not in self.in_memory:
                self._bind(str(expr), name)
        for name in self.program.inputs:
            buffer = self.program.buffers.get(name)
            if buffer is not None:
                self._bind_sizes(name, buffer.layout)

    def _bind(self, symbol: str, text: str) -> None:
        if symbol not in self.symbols:
            self.symbols.add(symbol)
            self.lines.append(Bind(symbol, text, self._reads(text)))
            self.names.add(symbol)

    def _bind_sizes(self, name: str, layout: BufferLayout) -> None:
        for kind, values in (("shape", layout.sizes), ("stride()", layout.strides)):
            for d, value in enumerate(values):
                if isinstance(value, Expr) and type(value).__name__ == "Symbol":
                    self._bind(str(value), f"{name}.{kind}[{d}]")

    def _output(self, o: Output) -> str:
        if o.buffer is None:
            return self._given(o.value) if str(o.value) in self.in_memory else _literal(o.value)
        layout = self.program.buffers[alias_root(self.program.buffers, o.buffer)].layout
        name = self._name(o.buffer)
        if name in self.shown and self.program.buffers[name].kind == "computed":
            return name
        if same_all(o.sizes, layout.sizes) and same_all(o.strides, layout.strides) and same(o.offset, 0):
            return name
        return f"{name}.as_strided({_tuple(o.sizes)}, {_tuple(o.strides)}, {self._offset(o.buffer, o.offset)}).detach()"

    def _shown(self) -> dict[str, Output]:
        """Buffers that are one output each, of other sizes, and that no library call sees: their tensors are made with those."""
        found: dict[str, list[Output]] = {}
        for o in self.program.outputs:
            if o.buffer is not None:
                found.setdefault(alias_root(self.program.buffers, o.buffer), []).append(o)
        seen = {
            alias_root(self.program.buffers, b)
            for k in self.plan.kernels
            if isinstance(k, ExternKernel)
            for b in (*k.reads, *k.writes)
        }
        taken = {new for step in self.plan.memory.steps for new, _ in step.reuse}
        return {
            root: outputs[0]
            for root, outputs in found.items()
            if len(outputs) == 1 and root not in seen | taken and _same_memory(outputs[0], self.program.buffers[root].layout)
        }

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
        return root

    def _window(self, root: str, sizes: Sequence[Size], strides: Sequence[Size], offset: Size) -> str:
        """A tensor over a buffer of the workspace, made once for each workspace."""
        layout = self.program.buffers[root].layout
        at, size = f"first + {self.workspace.offsets[root]}", layout.dtype.itemsize * constant_size(layout.elements())
        text = f"window(memory, {at}, {size}, {_dtype(layout.dtype)}, {_tuple(sizes)}, {_tuple(strides)}, {offset})"
        return f"views[{self.windows.setdefault(text, len(self.windows))}]"

    # kernels

    def _loop_kernel(self, kernel: LoopKernel | CoreKernel | KernelBatch, step: MemoryStep) -> None:
        self._allocate(step)
        function = self.functions[kernel.name]
        numbers = [self._number(s, kernel.device) for s in kernel.numbers] if isinstance(kernel, LoopKernel) else []
        operands: tuple[Address | int | str, ...]
        if isinstance(kernel, KernelBatch) and kernel.is_table:
            operands = self._table(kernel)
        else:
            operands = (*map(self._address, kernel.buffers), *numbers, *map(_extent, kernel.sizes))
        checks = index_checks(kernel) if kernel.device.type == "cpu" else ()
        failure = ""
        if checks:
            origins = self._shared(repr(tuple(check.origin for check in checks)), "o")
            failure = f"out_of_range(failed, {function!r}, {origins})"
        self.lines.append(Launch(function, operands, failure, self._written(kernel)))

    def _table(self, batch: KernelBatch) -> tuple[Address | int, ...]:
        """How many rows there are, and what each of them has: codegen/cpp/table.py."""
        operands: list[Address | int] = [len(batch.parts)]
        for row in map(row_of, batch.parts):
            assert row is not None
            for buffer, first in row.operands:
                address, layout = self._address(buffer), self._layout(buffer).in_loops
                assert isinstance(address.offset, int)  # sizes are known
                operands.append(Address(address.name, address.offset + first * layout.dtype.itemsize))
            operands.append(row.length)
        return tuple(operands)

    def _number(self, symbol: Any, device: torch.device) -> Address:
        """Where a kernel on a device reads a number that an input is."""
        name = f"{symbol}_{str(device).replace(':', '')}"
        if name not in self.names:
            self.lines.append(Number(name, self._given(symbol), str(device)))
            self.names.add(name)
        return Address(name)

    def _given(self, symbol: Any) -> str:
        """The input that is a symbol's number."""
        return next(name for name, expr in self.program.size_inputs.items() if same(expr, symbol))

    def _address(self, buffer: str) -> Address:
        root = alias_root(self.program.buffers, buffer)
        if root in self.workspace.offsets:
            return Address(WORK, self.workspace.offsets[root])
        return Address(root)

    def _allocate(self, step: MemoryStep, allocate: Callable[[str, BufferLayout], None] | None = None) -> None:
        for name in step.allocate:
            if self.program.buffers[name].kind == "computed" and name not in self.workspace.offsets:
                (allocate or self._empty)(name, self.program.buffers[name].layout)
        for new, old in step.reuse:
            if new in self.workspace.offsets:
                continue
            if old in self.counted:
                self.counted.add(new)
            a, b = self.program.buffers[new].layout, self.program.buffers[old].layout
            equal = same_all(a.sizes, b.sizes) and same_all(a.strides, b.strides)
            # an output is nobody's view: its own views have it as their base
            view = "" if equal else f".as_strided({_tuple(a.sizes)}, {_tuple(a.strides)}, 0).detach()"
            self.lines.append(Reuse(new, self._name(old), view))
            self.names.add(new)

    def _empty(self, name: str, layout: BufferLayout) -> None:
        """Memory that a kernel fills. A host program with one GPU runs with that as the current one."""
        device = layout.device.type
        if device != "cpu" and (device != "cuda" or len(self.gpus) > 1):
            self._eager_empty(name, layout)
            return
        shape = self.shown.get(name, layout)
        sizes, strides = tuple(map(_extent, shape.sizes)), tuple(map(_extent, shape.strides))
        dtype = str(layout.dtype).removeprefix("torch.")
        self.lines.append(Allocate(name, device, dtype, sizes, strides))
        self.names.add(name)

    def _eager_empty(self, name: str, layout: BufferLayout) -> None:
        """Memory that the program sees as it is, which torch fills where it is told to."""
        device = self._shared(f"device({str(layout.device)!r})", "d")
        shape = self.shown.get(name, layout)
        sizes, strides = _tuple(shape.sizes), _tuple(shape.strides)
        self._call(
            f"{name} = empty_strided({sizes}, {strides}, dtype={_dtype(layout.dtype)}, device={device})",
            writes=[name],
            devices=[layout.device],
        )

    def _free(self, step: MemoryStep) -> None:
        """Names are dropped as soon as nobody needs them, so that torch's allocator can hand the memory out again."""
        taken = [old for _, old in step.reuse]
        ended = [b for b in step.free if b not in self.renamed]
        gone = [name for b in (*ended, *taken) if (name := self._name(b)) in self.names]
        if gone:
            self.lines.append(Free(tuple(gone)))

    # library calls

    def _look(self) -> None:
        """At what all packed calls are made of: once for all of them, in their order."""
        packed = [k.node for k in self.plan.kernels if isinstance(k, ExternKernel) and k.node.target.startswith(PACKED_CALLS)]
        sources = [self._argument(a) for node in packed for a in node.args[_PACKED_OPERANDS:]]
        if packed:
            self.lines.append(Call((f"{_KNOWN} = {PACKED}.look({', '.join(sources)})",), self._reads(*sources), (_KNOWN,)))
            self.names.add(_KNOWN)

    def _extern(self, kernel: ExternKernel, step: MemoryStep) -> None:
        node = kernel.node
        if node.target == "empty":
            self._allocate(step, self._eager_empty)
            return
        if node.target == GEMM:
            self._gemm(node, step)
            return
        if node.target == DEPTHWISE:
            self._depthwise(node, step)
            return
        if node.target == NUMBER:
            self.lines.append(Number(str(node.outputs[0]), node.args[0].buffer, str(node.device)))
            self.names.add(str(node.outputs[0]))
            return
        arguments = [self._argument(a) for a in node.args]
        if node.target.startswith(PACKED_CALLS):
            arguments.insert(_PACKED_OPERANDS, _KNOWN)
        arguments += [f"{k}={self._argument(v)}" for k, v in node.kwargs]
        if node.out_form is not None and self._dense(node):
            self._allocate_extern(step)
            function = self._shared(node.out_form)
            self.counted.add(str(node.outputs[0]))
            name = str(node.outputs[0])
            call = f"{function}({', '.join([*arguments, f'out={self._name(name)}'])})"
            native = self._product(node, function)
            self._call(call if native else self._as_expected(node, name, call, is_own=True), node=node, native=native)
            return
        function = "restride" if node.target == "restride" else self._shared(node.target)
        if node.mutates is not None:
            self.counted.add(alias_root(self.program.buffers, node.mutates))
        elif node.target.startswith("prims.") or not kernel.reads:  # eager rules, and torch's makers, fill memory that they make
            self.counted.update(name for name in node.outputs if name is not None)
        call = f"{function}({', '.join(arguments)})"
        if not kernel.reads and not node.tuple_result:
            call += ".detach()"  # torch's windows are parts of longer ones
        self._results(node, function, call)

    # torch's C functions

    def _product(self, node: ExternNode, operator: str) -> Native | None:
        """A product into memory that is there, in one dtype."""
        layout = self.program.buffers[str(node.outputs[0])].layout
        result = BufferView(str(node.outputs[0]), layout.sizes, layout.strides)
        windows = [w for view in (result, *node.args) if (w := self._c_window(view, layout.device)) is not None]
        scale = dict(node.kwargs)
        numbers = [scale.get("beta", 1), scale.get("alpha", 1)]
        known = scale.keys() <= {"beta", "alpha"} and all(isinstance(n, (int, float)) for n in numbers)
        if node.out_form not in _PRODUCTS or len(windows) != len(node.args) + 1 or not known:
            return None
        if len({w.dtype for w in windows}) > 1:
            return None
        texts = [f"{name}={self._argument(scale[name])}" if name in scale else "" for name in ("beta", "alpha")]
        scales = tuple(Argument("float", float(n), text) for n, text in zip(numbers, texts, strict=True))
        tensors = (Argument("tensor", w, "{}" if n else "out={}") for n, w in enumerate(windows))
        scaled = scales if node.out_form in _SCALED else ()
        return Native(_PRODUCTS[node.out_form], str(layout.device), operator, False, (*tensors, *scaled), ())

    def _native(self, node: ExternNode, operator: str) -> Native | None:
        """A call of an operator of NATIVE whose arguments torch's C function takes."""
        overload = _overload(node.target)
        if overload is None or _torch.schema_name(overload) not in NATIVE or node.mutates is not None:
            return None
        declared = _torch.declared_arguments(overload)
        given = {name: value for (name, _, _), value in zip(declared, node.args, strict=False)} | dict(node.kwargs)
        if given.get("dropout_p"):
            return None  # it draws: a second call, where the results differ, would draw again
        arguments = []
        for n, (name, kind, default) in enumerate(declared):
            text = (
                ""
                if name not in given
                else self._c_text(given[name])
                if n < len(node.args)
                else f"{name}={self._c_text(given[name])}"
            )
            made = self._c_argument(kind, given.get(name, default), text, node.device)
            if made is None:
                return None
            arguments.append(made)
        results = tuple(self._c_result(node, n, kind) for n, kind in enumerate(_torch.declared_results(overload)))
        function = _torch.schema_name(overload).partition("::")[2]
        overloaded = _torch.overload_name(overload)
        function += "" if overloaded == "default" else f"_{overloaded}"
        return Native(function, str(node.device), operator, node.tuple_result, tuple(arguments), results)

    def _c_text(self, value: Any) -> str:
        return "{}" if isinstance(value, BufferView) else self._argument(value)

    def _c_argument(self, kind: str, value: Any, text: str, device: torch.device) -> Argument | None:
        """None for what a C function does not take so."""
        if value is None and kind.endswith("?"):
            return Argument("no ints" if kind == "ints?" else "nothing", None, text)
        if isinstance(value, BufferView):
            window = self._c_window(value, device)
            return Argument(kind, window, text) if window is not None and kind in ("tensor", "tensor?") else None
        if kind == "int" and isinstance(value, (int, Expr)):
            return Argument("int", (_extent(value),), text)
        if (
            kind in ("ints", "ints?", "bools")
            and isinstance(value, (tuple, list))
            and all(isinstance(v, (int, Expr)) for v in value)
        ):
            return Argument(kind, tuple(_extent(v) for v in value), text)
        if kind in ("float", "float?") and isinstance(value, (int, float)):
            return Argument(kind, float(value), text)
        return None

    def _c_window(self, view: Any, device: torch.device) -> Window | None:
        if not isinstance(view, BufferView):
            return None
        root = self._address(view.buffer)
        layout = self.program.buffers[alias_root(self.program.buffers, view.buffer)].layout
        if layout.device != device or not isinstance(root.offset, int):
            return None
        sizes, strides = tuple(map(_extent, view.sizes)), tuple(map(_extent, view.strides))
        dtype = str(layout.dtype).removeprefix("torch.")
        return Window(root.name, root.offset, _extent(view.offset), sizes, strides, self._view(view), dtype)

    def _c_result(self, node: ExternNode, number: int, kind: str) -> Result:
        name = node.outputs[number] if number < len(node.outputs) else None
        if kind != "tensor" or name not in self.read:
            return Result("", "any" if kind == "tensor" else "", (), (), "")
        layout = self.program.buffers[name].layout
        sizes, strides = tuple(map(_extent, layout.sizes)), tuple(map(_extent, layout.strides))
        dtype = str(layout.dtype).removeprefix("torch.")
        return Result(name, dtype, sizes, strides, self._as_expected(node, name, "{}"))

    def _gemm(self, node: ExternNode, step: MemoryStep) -> None:
        """A product by our own kernel: addresses, strides and sizes."""
        self._allocate_extern(step)
        a, b, addend = node.args
        out = str(node.outputs[0])
        (m, k), n = a.sizes, b.sizes[1]
        row = addend.strides[0] if addend is not None and len(addend.sizes) == 2 and not same(addend.sizes[0], 1) else 0
        added = self._first(addend) if addend is not None else 0
        operands = (self._first(a), *a.strides, self._first(b), *b.strides, added, row, self._address(out), n, m, n, k)
        self._core(GEMM, operands, out, "a matrix product")

    def _depthwise(self, node: ExternNode, step: MemoryStep) -> None:
        """The gradient of a depthwise convolution's weights by our own kernel: addresses and sizes."""
        self._allocate_extern(step)
        x, grad, window, stride, padding, dilation = node.args
        out = str(node.outputs[0])
        sizes = (*x.sizes, *grad.sizes[2:], *window, *stride, *padding, *dilation)
        self._core(DEPTHWISE, (self._first(x), self._first(grad), self._address(out), *sizes), out, "gradients of weights")

    def _core(self, core: str, operands: Sequence[Any], out: str, what: str) -> None:
        """A call of a core of ours that writes `out`, and fails where it has no memory for `what`."""
        written = () if self._root(out) in self.workspace.offsets else (self._root(out),)
        given = tuple(o if isinstance(o, Address) else _extent(o) for o in operands)
        self.lines.append(Launch(core, given, f"raise MemoryError({what!r})", written))

    def _first(self, view: BufferView) -> Address:
        """The first element of a window on float32."""
        base = self._address(view.buffer)
        if same(view.offset, 0):
            return base
        assert isinstance(view.offset, int) and isinstance(base.offset, int)  # own products are static
        return Address(base.name, base.offset + 4 * view.offset)

    def _dense(self, node: ExternNode) -> bool:
        return node.outputs[0] is not None

    def _allocate_extern(self, step: MemoryStep) -> None:
        self._allocate(MemoryStep((), step.reuse, ()))
        for name in (b for b in step.allocate if b not in self.workspace.offsets):
            self._empty(name, self.program.buffers[name].layout)

    def _results(self, node: ExternNode, function: str, call: str) -> None:
        if not node.tuple_result:
            name = node.outputs[0]
            if name not in self.read or node.mutates is not None:  # an input that is written is what it was
                self._call(call, node=node)
                return
            native = self._native(node, function)
            self._call(f"{name} = {self._as_expected(node, name, call)}", writes=[name], node=node, native=native)
            return
        # what nobody reads may be no tensor at all: attention kernels leave out what only their backward needs
        made = [name for name in node.outputs if name in self.read]
        names = [name if name in self.read else "_" for name in node.outputs]
        text = [f"{', '.join(names)}, = {call}"]
        if "_" in names:
            text.append("del _")
        if node.target != "restride":
            text += [f"{name} = {self._as_expected(node, name, name)}" for name in made]
        self._call(*text, writes=made, node=node, native=self._native(node, function))

    def _as_expected(self, node: ExternNode, name: str, text: str, *, is_own: bool = False) -> str:
        """A library's result, once it is known to be what kernels take it for. is_own: it was given memory to write to."""
        if node.target == "restride":
            return text
        layout = self.program.buffers[name].layout
        device = None if self._is_random_state(name) else self._shared(f"device({str(layout.device)!r})", "d")
        own = ", is_own=True" if is_own else ""
        check = self._shared(
            f"expected({_dtype(layout.dtype)}, {device}, {operators_of(self.program, node)[0]!r}, places{own})", "e"
        )
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


NATIVE = frozenset(
    f"aten::{name}"
    for name in "convolution _scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention "
    "_scaled_dot_product_cudnn_attention _scaled_dot_product_flash_attention_for_cpu "
    "_scaled_dot_product_flash_attention_backward _scaled_dot_product_efficient_attention_backward "
    "_scaled_dot_product_cudnn_attention_backward _scaled_dot_product_flash_attention_for_cpu_backward "
    "convolution_backward topk sort".split()
)
"""Operators that are called through torch's C functions: they refuse no data, which these would write to stderr."""
_PACKED_OPERANDS = 2
"""Of a packed call, what its weights are made of comes behind them."""
_KNOWN = "known"
"""What its look gives a program."""
_SCALED = ("torch.addmm", "torch.baddbmm")
_PRODUCTS = {"torch.mm": "mm_out", "torch.bmm": "bmm_out", "torch.addmm": "addmm_out", "torch.baddbmm": "baddbmm_out"}


def _overload(target: str) -> Any:
    """The operator that a text calls, if it is one of ATen's."""
    if target == "torch.convolution":
        return torch.ops.aten.convolution.default
    found = _OVERLOAD.fullmatch(target)
    return getattr(getattr(torch.ops.aten, found[1]), found[2]) if found is not None else None


_OVERLOAD = re.compile(r"torch\.ops\.aten\.(\w+)\.(\w+)")
_WORD = re.compile(r"[A-Za-z_]\w*")


def _same_memory(o: Output, layout: BufferLayout) -> bool:
    """Whether an output has all elements of its buffer, each once."""
    numbers = (*o.sizes, *o.strides, *layout.sizes, *layout.strides)
    if not same(o.offset, 0) or not all(isinstance(n, int) for n in numbers) or math.prod(o.sizes) != math.prod(layout.sizes):
        return False
    return 0 not in o.sizes and _is_dense(o.sizes, o.strides) and _is_dense(layout.sizes, layout.strides)


def _is_dense(sizes: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Whether each place of memory from the first element on is one element's."""
    reach = 1
    for stride, size in sorted((t, s) for s, t in zip(sizes, strides, strict=True) if s != 1):
        if stride != reach:
            return False
        reach *= size
    return True


def _extent(size: Size) -> int | str:
    return str(size) if isinstance(size, Expr) else size


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

"""Hand-written kernels for the Triton renderer: one row each with inputs and what eager gives."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from tracework_inductor.ir.body import Axis, IndexCheck
from tracework_inductor.ir.buffer import Buffer, BufferLayout, BufferView, CoreNode
from tracework_inductor.ir.handlers import Recorder
from tracework_inductor.ir.index import floordiv, mod, symbol
from tracework_inductor.ir.scalar_ops import handling, ops
from tracework_inductor.schedule.plan import CoreKernel, LoopKernel, Pass, Scratch, core_kernel

F32, BF16, I64, BOOL = torch.float32, torch.bfloat16, torch.int64, torch.bool
I, J, K, S = symbol("i", 0, None), symbol("j", 0, None), symbol("k", 0, None), symbol("s0", 1, None)  # noqa: E741


@dataclasses.dataclass(frozen=True)
class Sample:
    """kernel; inputs() by buffer name; eager(inputs) -> expected outputs by name; sizes; kind of kernel expected."""

    kernel: LoopKernel | CoreKernel
    inputs: Callable[[], dict[str, torch.Tensor]]
    eager: Callable[..., dict[str, torch.Tensor]]
    kind: str
    sizes: tuple[int, ...] = ()
    tolerance: float = 1e-5

    def tensors(self, device: str = "cpu") -> dict[str, torch.Tensor]:
        """Inputs, and outputs filled with a value that must disappear."""
        torch.manual_seed(0)
        made = {name: t.to(device) for name, t in self.inputs().items()}
        values = {"s0": self.sizes[0]} if self.sizes else {}
        for name in self.kernel.buffers:
            if name not in made:
                layout = self.kernel.layouts[name]
                sizes = [eval(str(s), {}, values) for s in layout.sizes]
                made[name] = torch.full(sizes, 77, dtype=layout.dtype, device=device)
        return {name: made[name] for name in self.kernel.buffers}


def dense(*sizes: Any, dtype: torch.dtype = F32) -> BufferLayout:
    """A row-major layout."""
    return BufferLayout.dense(dtype, torch.device("cpu"), sizes)


def build(
    axes: tuple[Axis, ...],
    inner: tuple[Axis, ...],
    passes: list[tuple[str, Callable[[], None]]],
    layouts: Mapping[str, BufferLayout],
    scratch: tuple[Scratch, ...] = (),
    sizes: tuple[Any, ...] = (),
) -> LoopKernel:
    """A kernel from functions that call `ops`."""
    recorded = []
    for level, function in passes:
        recorder = Recorder(axes, inner)
        with handling(recorder):
            function()
        recorded.append(Pass(level, recorder.finish()))
    return LoopKernel(
        "k", torch.device("cpu"), axes, inner, tuple(recorded), scratch, tuple(layouts), layouts, sizes,
        frozenset(layouts), frozenset(layouts),
    )  # fmt: skip


def pointwise() -> Sample:
    def body() -> None:
        x, y = ops.load("a", 40 * I + J, F32), ops.load("b", J, F32)
        ops.store("c", 40 * I + J, ops.mul(ops.tanh(ops.add(x, y)), ops.constant(2, F32)))

    kernel = build((Axis(I, 33), Axis(J, 40)), (), [("outer", body)], {"a": dense(33, 40), "b": dense(40), "c": dense(33, 40)})
    return Sample(
        kernel,
        lambda: {"a": torch.randn(33, 40), "b": torch.randn(40)},
        lambda a, b, c: {"c": torch.tanh(a + b) * 2},
        "pointwise",
    )


def transposed() -> Sample:
    def body() -> None:
        ops.store("b", 50 * I + J, ops.load("a", 60 * J + I, F32))

    kernel = build((Axis(I, 60), Axis(J, 50)), (), [("outer", body)], {"a": dense(50, 60), "b": dense(60, 50)})
    return Sample(kernel, lambda: {"a": torch.randn(50, 60)}, lambda a, b: {"b": a.t().contiguous()}, "tiled")


def half() -> Sample:
    def body() -> None:
        x = ops.load("a", I, BF16)
        ops.store("b", I, ops.sigmoid(ops.mul(x, x)))

    kernel = build((Axis(I, 999),), (), [("outer", body)], {"a": dense(999, dtype=BF16), "b": dense(999, dtype=BF16)})
    return Sample(
        kernel,
        lambda: {"a": torch.randn(999).bfloat16()},
        lambda a, b: {"b": torch.sigmoid(a.float() ** 2).bfloat16()},
        "pointwise",
        tolerance=1e-2,
    )


def softmax(rows: int, columns: int, kind: str, scratch: bool = False) -> Sample:
    at = I * columns + J

    def shifted() -> Any:
        return ops.exp(ops.sub(ops.load("a", at, F32), ops.local("m", F32)))

    def total() -> None:
        value = shifted()
        ops.reduce("s", "sum", value)
        if scratch:
            ops.scratch_store("e", J, value)

    def write() -> None:
        value = ops.scratch_load("e", J, F32) if scratch else shifted()
        ops.store("b", at, ops.div(value, ops.local("s", F32)))

    passes = [("inner", lambda: ops.reduce("m", "max", ops.load("a", at, F32))), ("inner", total), ("inner", write)]
    kept = (Scratch("e", F32, columns),) if scratch else ()
    layouts = {"a": dense(rows, columns), "b": dense(rows, columns)}
    kernel = build((Axis(I, rows),), (Axis(J, columns),), passes, layouts, kept)
    return Sample(kernel, lambda: {"a": torch.randn(rows, columns)}, lambda a, b: {"b": torch.softmax(a, -1)}, kind)


def scratch_in_memory() -> Sample:
    columns = 17000
    at = I * columns + J

    def total() -> None:
        value = ops.load("a", at, F32)
        for name in "bc":
            value = ops.mul(value, ops.load(name, at, F32))
        ops.reduce("s", "sum", value)
        ops.scratch_store("e", J, value)

    def write() -> None:
        ops.store("d", at, ops.sub(ops.scratch_load("e", J, F32), ops.local("s", F32)))

    layouts = {n: dense(40, columns) for n in "abcd"}
    passes = [("inner", total), ("inner", write)]
    kernel = build((Axis(I, 40),), (Axis(J, columns),), passes, layouts, (Scratch("e", F32, columns),))

    def eager(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> Any:
        return {"d": a * b * c - (a * b * c).sum(1, keepdim=True)}

    return Sample(kernel, lambda: {n: torch.randn(40, columns) for n in "abc"}, eager, "looped", tolerance=1e-3)


def layer_norm(columns: int) -> Sample:
    at, n = I * columns + J, float(columns)

    def mean() -> None:
        ops.define("mean", ops.div(ops.local("s", F32), ops.constant(n, F32)))

    def squares() -> None:
        d = ops.sub(ops.load("a", at, F32), ops.local("mean", F32))
        ops.reduce("v", "sum", ops.mul(d, d))

    def scale() -> None:
        v = ops.div(ops.local("v", F32), ops.constant(n, F32))
        r = ops.rsqrt(ops.add(v, ops.constant(1e-5, F32)))
        ops.define("r", r)
        ops.store("rstd", I, r)

    def write() -> None:
        d = ops.sub(ops.load("a", at, F32), ops.local("mean", F32))
        y = ops.mul(ops.mul(d, ops.local("r", F32)), ops.load("w", J, F32))
        ops.store("b", at, ops.add(y, ops.load("bias", J, F32)))

    passes = [
        ("inner", lambda: ops.reduce("s", "sum", ops.load("a", at, F32))),
        ("outer", mean), ("inner", squares), ("outer", scale), ("inner", write),
    ]  # fmt: skip
    layouts = {"a": dense(40, columns), "w": dense(columns), "bias": dense(columns), "b": dense(40, columns), "rstd": dense(40)}
    kernel = build((Axis(I, 40),), (Axis(J, columns),), passes, layouts)

    def eager(a: torch.Tensor, w: torch.Tensor, bias: torch.Tensor, b: torch.Tensor, rstd: torch.Tensor) -> Any:
        out, _, r = torch.native_layer_norm(a, [columns], w, bias, 1e-5)
        return {"b": out, "rstd": r.reshape(-1)}

    inputs = lambda: {"a": torch.randn(40, columns), "w": torch.randn(columns), "bias": torch.randn(columns)}
    return Sample(kernel, inputs, eager, "persistent")


def column_sum(rows: int, columns: int, kind: str) -> Sample:
    passes = [
        ("inner", lambda: ops.reduce("s", "sum", ops.load("a", J * columns + I, F32))),
        ("outer", lambda: ops.store("b", I, ops.neg(ops.local("s", F32)))),
    ]
    kernel = build((Axis(I, columns),), (Axis(J, rows),), passes, {"a": dense(rows, columns), "b": dense(columns)})
    return Sample(kernel, lambda: {"a": torch.randn(rows, columns)}, lambda a, b: {"b": -a.sum(0)}, kind, tolerance=1e-3)


def full_sum() -> Sample:
    passes = [
        ("inner", lambda: ops.reduce("s", "sum", ops.load("a", J * 50 + K, F32))),
        ("outer", lambda: ops.store("b", 0, ops.local("s", F32))),
    ]
    kernel = build((), (Axis(J, 3000), Axis(K, 50)), passes, {"a": dense(3000, 50), "b": dense()})
    return Sample(kernel, lambda: {"a": torch.rand(3000, 50)}, lambda a, b: {"b": a.sum()}, "looped split", tolerance=1)


def gather() -> Sample:
    def body() -> None:
        t = ops.indirect(ops.load("index", I, I64), 100, True, IndexCheck(0, 30, "getitem, model.py:3 in forward"))
        ops.store("b", 8 * I + J, ops.load("a", 8 * t + J, F32))

    kernel = build(
        (Axis(I, 30), Axis(J, 8)), (), [("outer", body)],
        {"a": dense(100, 8), "index": dense(30, dtype=I64), "b": dense(30, 8)},
    )  # fmt: skip
    return Sample(
        kernel,
        lambda: {"a": torch.randn(100, 8), "index": torch.randint(-100, 100, (30,))},
        lambda a, index, b: {"b": a[index]},
        "pointwise",
    )


def gathered_sum(columns: int, kind: str) -> Sample:
    """Rows of sums of what is gathered where a condition on the position holds; the index is that of the column, or one of the row."""
    check, of_row = (IndexCheck(n, columns, f"gather, model.py:{n} in forward") for n in range(2))

    def total() -> None:
        row = ops.indirect(ops.load("rows", I, I64), 20, False, of_row)
        inside = ops.lt(ops.index_expr(J, I64), ops.constant(columns - 1, I64))

        def found() -> Any:
            return ops.load("a", 9 * row + ops.indirect(ops.load("index", J, I64), 9, False, check), F32)

        ops.reduce("s", "sum", ops.masked(inside, found, 0))

    passes = [("inner", total), ("outer", lambda: ops.store("b", I, ops.local("s", F32)))]
    layouts = {"a": dense(20, 9), "rows": dense(7, dtype=I64), "index": dense(columns, dtype=I64), "b": dense(7)}

    def inputs() -> dict[str, torch.Tensor]:
        index = torch.randint(0, 9, (columns,))
        index[-1] = -1  # which nobody reads
        return {"a": torch.rand(20, 9), "rows": torch.randint(0, 20, (7,)), "index": index}

    return Sample(
        build((Axis(I, 7),), (Axis(J, columns),), passes, layouts),
        inputs,
        lambda a, rows, index, b: {"b": a[rows][:, index[:-1]].sum(1)},
        kind,
        tolerance=1e-3,
    )


def only_checked() -> Sample:
    def body() -> None:
        ops.indirect(ops.load("index", I, I64), 10, False, IndexCheck(0, 30, "embedding, model.py:3 in forward"))

    kernel = build((Axis(I, 30),), (), [("outer", body)], {"index": dense(30, dtype=I64)})
    return Sample(kernel, lambda: {"index": torch.randint(0, 10, (30,))}, lambda index: {}, "pointwise")


def scatter_add() -> Sample:
    def body() -> None:
        t = ops.indirect(ops.load("index", I, I64), 10, False, IndexCheck(0, 30, "index_add, model.py:3 in forward"))
        ops.store("b", 8 * t + J, ops.load("a", 8 * I + J, F32), "add")

    kernel = build(
        (Axis(I, 30), Axis(J, 8)), (), [("outer", body)],
        {"a": dense(30, 8), "index": dense(30, dtype=I64), "b": dense(10, 8)},
    )  # fmt: skip
    return Sample(
        kernel,
        lambda: {"a": torch.randn(30, 8), "index": torch.randint(0, 10, (30,)), "b": torch.zeros(10, 8)},
        lambda a, index, b: {"b": b.index_add(0, index, a)},
        "pointwise",
    )


def argmax(rows: int, columns: int, kind: str, down: bool = False) -> Sample:
    """Of each row, or of each column of the transpose."""
    at = J * rows + I if down else I * columns + J

    def find() -> None:
        ops.reduce("p", "argmax", ops.load("a", at, F32), ops.index_expr(J, I64))

    passes = [("inner", find), ("outer", lambda: ops.store("b", I, ops.local("p", I64)))]
    layouts = {"a": dense(columns, rows) if down else dense(rows, columns), "b": dense(rows, dtype=I64)}

    def inputs() -> dict[str, torch.Tensor]:
        a = torch.randint(0, 5, (rows, columns)).float()
        a[1, columns // 2] = float("nan")
        return {"a": a.T.contiguous() if down else a}

    kernel = build((Axis(I, rows),), (Axis(J, columns),), passes, layouts)
    return Sample(kernel, inputs, lambda a, b: {"b": a.argmax(0 if down else 1)}, kind)


def bytes_as_floats() -> Sample:
    """All values of one byte, of both kinds."""

    def body() -> None:
        for a, b, dtype in (("a", "b", torch.int8), ("c", "d", torch.uint8)):
            ops.store(b, I, ops.to_dtype(ops.load(a, I, dtype), F32))

    layouts = {"a": dense(256, dtype=torch.int8), "b": dense(256), "c": dense(256, dtype=torch.uint8), "d": dense(256)}
    every = torch.arange(256)
    return Sample(
        build((Axis(I, 256),), (), [("outer", body)], layouts),
        lambda: {"a": (every - 128).to(torch.int8), "c": every.to(torch.uint8)},
        lambda a, c, **_: {"b": a.float(), "d": c.float()},
        "pointwise",
        tolerance=0,
    )


def cumsum(columns: int, kind: str) -> Sample:
    at = I * columns + J
    passes = [("inner", lambda: ops.store("b", at, ops.scan("c", "sum", ops.load("a", at, F32))))]
    kernel = build((Axis(I, 4),), (Axis(J, columns),), passes, {"a": dense(4, columns), "b": dense(4, columns)})
    return Sample(kernel, lambda: {"a": torch.randn(4, columns)}, lambda a, b: {"b": a.cumsum(1)}, kind, tolerance=1e-3)


def padded() -> Sample:
    def body() -> None:
        inside = ops.logical_and(
            ops.ge(ops.index_expr(J, I64), ops.constant(2, I64)), ops.lt(ops.index_expr(J, I64), ops.constant(9, I64))
        )
        value = Recorder.masked(_current(), inside, lambda: ops.load("a", 7 * I + J - 2, F32), -1.0)
        ops.store("b", 11 * I + J, value)

    kernel = build((Axis(I, 13), Axis(J, 11)), (), [("outer", body)], {"a": dense(13, 7), "b": dense(13, 11)})
    return Sample(
        kernel,
        lambda: {"a": torch.randn(13, 7)},
        lambda a, b: {"b": torch.nn.functional.pad(a, (2, 2), value=-1.0)},
        "pointwise",
    )


def _current() -> Any:
    from tracework_inductor.ir import scalar_ops

    return scalar_ops._handler.get()


def flipped_and_divided() -> Sample:
    def body() -> None:
        a = ops.load("a", 63 - I, F32)
        b = ops.load("a", floordiv(I, 4) + 16 * mod(I, 4), F32)
        ops.store("b", I, ops.sub(a, b))

    kernel = build((Axis(I, 64),), (), [("outer", body)], {"a": dense(64), "b": dense(64)})
    return Sample(
        kernel,
        lambda: {"a": torch.randn(64)},
        lambda a, b: {"b": a.flip(0) - a.view(4, 16).t().reshape(-1)},
        "pointwise",
    )


def booleans() -> Sample:
    def body() -> None:
        m = ops.lt(ops.load("a", I, F32), ops.constant(0, F32))
        m = ops.logical_or(m, ops.load("m", I, BOOL))
        ops.store("b", I, ops.logical_not(m))
        ops.store("c", I, ops.add(ops.to_dtype(m, I64), ops.constant(1, I64)))

    layouts = {"a": dense(100), "m": dense(100, dtype=BOOL), "b": dense(100, dtype=BOOL), "c": dense(100, dtype=I64)}
    kernel = build((Axis(I, 100),), (), [("outer", body)], layouts)
    return Sample(
        kernel,
        lambda: {"a": torch.randn(100), "m": torch.rand(100) > 0.5},
        lambda a, m, b, c: {"b": ~((a < 0) | m), "c": ((a < 0) | m).long() + 1},
        "pointwise",
    )


def dynamic_rows() -> Sample:
    passes = [
        ("inner", lambda: ops.reduce("s", "sum", ops.load("a", I * S + J, F32))),
        ("inner", lambda: ops.store("b", I * S + J, ops.div(ops.load("a", I * S + J, F32), ops.local("s", F32)))),
    ]
    kernel = build((Axis(I, 5),), (Axis(J, S),), passes, {"a": dense(5, S), "b": dense(5, S)}, sizes=(S,))
    return Sample(kernel, lambda: {"a": torch.rand(5, 300)}, lambda a, b: {"b": a / a.sum(1, keepdim=True)}, "looped", (300,))


def dynamic_softmax() -> Sample:
    """Of rows of negative numbers: parts that a launch does not have must not count."""

    def below() -> Any:
        return ops.exp(ops.sub(ops.load("a", I * S + J, F32), ops.local("m", F32)))

    passes = [
        ("inner", lambda: ops.reduce("m", "max", ops.load("a", I * S + J, F32))),
        ("inner", lambda: ops.reduce("s", "sum", below())),
        ("inner", lambda: ops.store("b", I * S + J, ops.div(below(), ops.local("s", F32)))),
    ]
    kernel = build((Axis(I, 3),), (Axis(J, S),), passes, {"a": dense(3, S), "b": dense(3, S)}, sizes=(S,))
    return Sample(
        kernel, lambda: {"a": torch.randn(3, 20001) - 200}, lambda a, b: {"b": torch.softmax(a, -1)}, "looped", (20001,)
    )


def dynamic_pointwise() -> Sample:
    def body() -> None:
        ops.store("b", I * S + J, ops.add(ops.load("a", I * S + J, F32), ops.load("c", J, F32)))

    layouts = {"a": dense(7, S), "c": dense(S), "b": dense(7, S)}
    kernel = build((Axis(I, 7), Axis(J, S)), (), [("outer", body)], layouts, sizes=(S,))
    return Sample(
        kernel,
        lambda: {"a": torch.rand(7, 41), "c": torch.rand(41)},
        lambda a, c, b: {"b": a + c},
        "pointwise",
        (41,),
    )


def one_element_rows() -> Sample:
    passes = [
        ("inner", lambda: ops.reduce("s", "max", ops.load("a", I + J, F32))),
        ("outer", lambda: ops.store("b", I, ops.local("s", F32))),
    ]
    kernel = build((Axis(I, 9),), (Axis(J, 1),), passes, {"a": dense(9, 1), "b": dense(9)})
    return Sample(kernel, lambda: {"a": torch.randn(9, 1)}, lambda a, b: {"b": a[:, 0]}, "persistent")


def wide_values() -> Sample:
    def body() -> None:
        x = ops.load("a", I, torch.int32)
        y = ops.load("b", I, torch.int32)
        ops.store("c", I, ops.floor_divide(x, y))
        ops.store("d", I, ops.remainder(x, y))
        z = ops.to_dtype(x, F32)
        ops.store("e", I, ops.pow(ops.abs(z), ops.constant(0.5, F32)))

    i32 = torch.int32
    layouts = {**{n: dense(200, dtype=i32) for n in "abcd"}, "e": dense(200)}
    kernel = build((Axis(I, 200),), (), [("outer", body)], layouts)
    return Sample(
        kernel,
        lambda: {"a": torch.randint(-50, 50, (200,), dtype=i32), "b": torch.randint(1, 9, (200,), dtype=i32) * -1},
        lambda a, b, c, d, e: {"c": a // b, "d": a % b, "e": a.float().abs() ** 0.5},
        "pointwise",
    )


def attention_decode(width: int, queries: int, keys: int) -> Sample:
    """Two batches of six heads that share two key heads, with a mask that is filled up to another place for each query."""
    sizes = {
        "q": (2, 2, 3, queries, width),
        "k": (2, 2, keys, width),
        "v": (2, 2, keys, width),
        "m": (2, queries, keys),
        "h": (2, queries, 1),
    }
    sizes["o"] = sizes["q"]
    layouts = {name: dense(*s) for name, s in sizes.items()}

    def view(name: str) -> BufferView:
        sizes, strides = layouts[name].sizes, layouts[name].strides
        if name in "mh":
            sizes, strides = (2, 2, 3, *sizes[1:]), (strides[0], 0, 0, *strides[1:])
        return BufferView(name, sizes, strides)

    def inputs() -> dict[str, torch.Tensor]:
        q, k, v = (torch.randn(sizes[name]) for name in "qkv")
        filled = torch.tensor([keys // 3, keys])[:, None, None] - torch.arange(queries)[:, None]
        mask = torch.zeros(sizes["m"]).masked_fill(torch.arange(keys) >= filled, float("-inf"))
        return {"q": q, "k": k, "v": v, "m": mask, "h": mask.amax(2, True)}

    def eager(q: Any, k: Any, v: Any, m: Any, **others: Any) -> dict[str, torch.Tensor]:
        k, v, m = (x.double().unsqueeze(2) for x in (k, v, m.unsqueeze(1)))
        return {"o": ((q.double() @ k.transpose(3, 4) * 0.2 + m).softmax(-1) @ v).float()}

    facts = ("distance", 2.0**100), ("causal", False), ("scale", 0.2), ("written", False), ("zeroed", True), ("fill", None)
    node = CoreNode("core0", "attention_decode", tuple(map(view, "qkvmh")), (view("o"),), facts, torch.device("cpu"))
    kernel = core_kernel(node, {name: Buffer(name, layout, "computed") for name, layout in layouts.items()})
    return Sample(kernel, inputs, eager, "attention of")


def top_three() -> Sample:
    """The three largest of each row, and where they are."""

    def body() -> None:
        value = ops.load("a", 20 * I + J, F32)
        place = ops.argsort(value, True)
        mask = ops.lt(ops.index_expr(J, I64), ops.constant(3, I64))
        ops.store("b", 3 * I + J, ops.take_along(value, place), mask=mask)
        ops.store("c", 3 * I + J, place, mask=mask)

    layouts = {"a": dense(9, 20), "b": dense(9, 3), "c": dense(9, 3, dtype=I64)}
    return Sample(
        build((Axis(I, 9),), (Axis(J, 20),), [("inner", body)], layouts),
        lambda: {"a": torch.randn(9, 20)},
        lambda a, b, c: dict(zip("bc", torch.topk(a, 3, 1), strict=True)),
        "sorted",
    )


SAMPLES: dict[str, Callable[[], Sample]] = {
    "pointwise": pointwise,
    "transposed": transposed,
    "half": half,
    "softmax": lambda: softmax(7, 100, "persistent"),
    "top three": top_three,
    "softmax scratch": lambda: softmax(5, 64, "persistent", True),
    "softmax long": lambda: softmax(40, 17000, "looped"),
    "softmax long scratch": lambda: softmax(36, 16500, "looped", True),
    "softmax split": lambda: softmax(3, 20000, "looped split"),
    "scratch in memory": scratch_in_memory,
    "softmax split scratch": lambda: softmax(2, 9000, "looped split", True),
    "layer norm": lambda: layer_norm(96),
    "attention decode": lambda: attention_decode(64, 1, 300),
    "attention decode queries": lambda: attention_decode(80, 3, 40),
    "column sum": lambda: column_sum(5000, 70, "looped split"),
    "column sum short": lambda: column_sum(20, 3000, "persistent"),
    "column sum wide": lambda: column_sum(100, 9000, "looped"),
    "full sum": full_sum,
    "gather": gather,
    "gathered sum": lambda: gathered_sum(40, "persistent"),
    "gathered sum long": lambda: gathered_sum(20000, "looped"),
    "only checked": only_checked,
    "scatter add": scatter_add,
    "bytes": bytes_as_floats,
    "argmax": lambda: argmax(6, 50, "persistent"),
    "argmax long": lambda: argmax(3, 5000, "looped"),
    "argmax split": lambda: argmax(2, 8200, "looped split"),
    "argmax of columns": lambda: argmax(16, 520, "looped split", down=True),
    "cumsum": lambda: cumsum(60, "persistent"),
    "cumsum long": lambda: cumsum(5000, "looped"),
    "padded": padded,
    "flipped": flipped_and_divided,
    "booleans": booleans,
    "dynamic rows": dynamic_rows,
    "dynamic softmax": dynamic_softmax,
    "dynamic pointwise": dynamic_pointwise,
    "one element rows": one_element_rows,
    "integers": wide_values,
}

"""Attention as a core: with few queries, as passes/fuse_attention.py finds it, and with bodies that change and mask its scores."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from tracework_primops import SizeSpec, parse_graph

from ..ir.body import Axis, LoopBody
from ..ir.bounds import narrowed
from ..ir.buffer import BufferLayout, BufferView, CoreNode
from ..ir.cores import most_rows
from ..ir.early_floats import with_early_floats
from ..ir.handlers import Recorder
from ..ir.index import Expr, Size, contiguous_strides, same, substitute, symbol
from ..ir.scalar_ops import handling, ops
from ..ir.views import expand_map
from . import fallback
from .layout import dense_strides
from .mask_blocks import mask_blocks
from .operands import each_head_once
from .registry import LOWERINGS, Refused, lowers
from .value import Lazy, Strided, TensorValue
from .view import expand


@lowers("attention_decode")
def attention_decode(
    low: Any,
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    highest: Any,
    distance: float,
    causal: bool,
    scale: float,
    written: bool,
    zeroed: bool,
    fill: float | None,
) -> Any:
    """Keys, values and mask where they lie, one head for all that repeat it; what is not in memory is computed into it."""
    q = _in_memory(low, q)
    rows = q.sizes[1] // k.sizes[1] * q.sizes[2]
    most = most_rows(max(k.sizes[3], v.sizes[3]), q.device.type) // rows
    k, v = (_in_memory(low, x) for x in each_head_once(low, k, v, most))
    batch, heads, queries, _ = q.sizes
    groups = k.sizes[1]

    def of_scores(x: Any, keys: Size) -> BufferView | None:
        return None if x is None else _grouped(expand(low, _in_memory(low, x), (batch, heads, queries, keys)), groups)

    masks = of_scores(mask, k.sizes[2]), of_scores(highest, 1)
    sizes = (*q.sizes[:3], v.sizes[3])
    result = low.whole(low.new_buffer(BufferLayout(q.dtype, q.device, sizes, dense_strides(sizes, low.spec.strides))))
    low.add_node(
        CoreNode(
            f"core{len(low.nodes)}",
            "attention_decode",
            (_grouped(q, groups), _view(k), _view(v), *masks),
            (_grouped(result, groups),),
            (
                *(("distance", distance), ("causal", causal), ("scale", scale)),
                *(("written", written), ("zeroed", zeroed), ("fill", fill)),
            ),
            q.device,
            low.origins(),
        )
    )
    return result


def _in_memory(low: Any, x: Any) -> Strided:
    return low.at_one_place(low.place(x) or x)


def _view(at: Strided, sizes: Sequence[Size] | None = None, strides: Sequence[Size] | None = None) -> BufferView:
    return BufferView(at.buffer, tuple(sizes or at.sizes), tuple(strides or at.strides), at.offset)


def _grouped(at: Strided, groups: int) -> BufferView:
    """(batch, heads, ...) as (batch, groups, heads of a group, ...)."""
    (batch, heads, *sizes), (over, head, *strides) = at.sizes, at.strides
    members = heads // groups
    return _view(at, (batch, groups, members, *sizes), (over, head * members, head, *strides))


DEVICES = frozenset({"cpu", "cuda"})
"""Types of devices whose renderer has a core of attention with bodies."""
GRADIENT_DEVICES = frozenset({"cuda"})
"""Those with cores of its gradients."""
DTYPES = frozenset({torch.bfloat16, torch.float16, torch.float32})
MOST_WIDTH = 256
OF_KEYS = frozenset({"attention_keys", "attention_sums_of_keys"})
"""Cores whose programs walk over queries."""
WITHOUT_LISTS = frozenset({"attention_sums_of_distances"})
"""Those that walk over all blocks."""
LONGEST = 2**28
"""Queries and keys that no call has more of: it would take years."""


@lowers("attention")
def attention(
    low: Any, q: Any, k: Any, v: Any, captured: Any, blocks: Any, sizes: Any,
    score: str, keep: str, scale: float, extents: Any, zeroed: bool,
) -> Any:  # fmt: skip
    """A kernel that holds no scores; the eager rule for tensors that it is not made for."""
    _check(q, k, v, DEVICES)
    strides = low.spec[0].strides
    k, v = each_head_once(low, k, v, k.sizes[1])
    bodies = {"changed": score, "keep": keep}
    made = _Core(
        low, (q, k, v), captured, blocks, sizes, bodies, (("scale", scale), ("extents", tuple(extents)), ("zeroed", zeroed))
    )
    out, rows = (*q.sizes[:3], v.sizes[3]), (torch.float32, q.sizes[:3], None)
    return made.node("attention", (q, k, v), [(q.dtype, out, strides), rows, rows])


@lowers("attention_backward")
def attention_backward(
    low: Any, grad: Any, q: Any, k: Any, v: Any, logs: Any, highest: Any, delta: Any, captured: Any, blocks: Any, sizes: Any,
    score: str, slope: str, keep: str, scale: float, extents: Any,
) -> Any:  # fmt: skip
    """Two kernels, each of which computes the weights again."""
    _check(q, k, v, GRADIENT_DEVICES)
    bodies = {"changed": score, "keep": keep, **({"slope": slope} if slope else {})}
    made = _Core(low, (q, k, v), captured, blocks, sizes, bodies, (("scale", scale), ("extents", tuple(extents))))
    operands = tuple(_in_memory(low, x) for x in (grad, q, k, v, logs, highest, delta))
    layouts = [(x.dtype, x.sizes, spec.strides) for x, spec in zip((q, k, v), low.spec, strict=True)]
    (dq,) = made.node("attention_queries", operands, layouts[:1])
    return dq, *made.node("attention_keys", operands, layouts[1:])


@lowers("attention_sums")
def attention_sums(
    low: Any, grad: Any, q: Any, k: Any, v: Any, logs: Any, highest: Any, delta: Any, captured: Any, blocks: Any, sizes: Any,
    score: str, factor: str, keep: str, scale: float, extents: Any, along: str,
) -> Any:  # fmt: skip
    """A kernel that computes the weights again; what it sums up is what slopes are for gradients."""
    _check(q, k, v, GRADIENT_DEVICES)
    bodies = {"changed": score, "keep": keep, "slope": factor}
    made = _Core(low, (q, k, v), captured, blocks, sizes, bodies, (("scale", scale), ("extents", tuple(extents))))
    operands = tuple(_in_memory(low, x) for x in (grad, q, k, v, logs, highest, delta))
    (sums,) = made.node(f"attention_sums_of_{along}", operands, [(torch.float32, low.spec.sizes, None)])
    return sums


def _check(q: Any, k: Any, v: Any, devices: frozenset[str]) -> None:
    fixed = (q.sizes[1], k.sizes[1], q.sizes[3], v.sizes[3])
    if q.device.type not in devices or q.dtype not in DTYPES or not all(isinstance(n, int) and n for n in fixed):
        raise Refused("no kernel of attention is made for it")
    if max(fixed[2:]) > MOST_WIDTH or any(same(n, 0) for x in (q, k) for n in x.sizes):
        raise Refused("no kernel of attention is made for rows of that width, or for none")


class _Core:
    """What the kernels of one call share: what their bodies read lies in memory, and the bodies are recorded over the scores' indices."""

    def __init__(
        self,
        low: Any,
        qkv: Sequence[Any],
        captured: Any,
        blocks: Any,
        sizes: Any,
        texts: Mapping[str, str],
        facts: tuple[tuple[str, Any], ...],
    ) -> None:
        self.low, self.device = low, qkv[0].device
        q, k, _ = qkv
        self.sizes = (*q.sizes[:3], k.sizes[2])
        self.index = tuple(0 if same(n, 1) else symbol(f"a{d}", 0, None) for d, n in enumerate(self.sizes))
        self.axes = tuple(Axis(var, n) for var, n in zip(self.index, self.sizes, strict=True) if isinstance(var, Expr))
        self.captured = [self._in_rows(x) for x in captured]
        self.blocks = [_in_memory(low, x) for x in blocks]
        self.numbers = sizes
        self.body = self._recorded(texts)
        self.facts = (("body", self.body), *facts, ("index", self.index), ("blocks", len(self.blocks)))
        widths = qkv[0].sizes[3] + qkv[2].sizes[3]
        self.mask = None if self.blocks else mask_blocks(low, self.device, self.body, self.index, self.sizes, widths)

    def node(
        self, core: str, operands: Sequence[Any], results: Sequence[tuple[torch.dtype, Sequence[Size], Any]]
    ) -> tuple[Any, ...]:
        """Adds the core's node; gives its results, of these dtypes and sizes, with axes in memory in the order of strides if there are any."""
        layouts = []
        for dtype, shape, strides in results:
            sizes = tuple(shape)
            layouts.append(BufferLayout(dtype, self.device, sizes, dense_strides(sizes, strides or contiguous_strides(sizes))))
        made = [self.low.whole(self.low.new_buffer(layout)) for layout in layouts]
        mask = None if core in WITHOUT_LISTS else self.mask
        lists = [] if mask is None else [*mask.blocks.along(2 if core in OF_KEYS else 3)]
        given = [_in_memory(self.low, x) for x in operands] + (lists or self.blocks) + self.captured
        facts = self.facts if mask is None else (*self.facts, *mask.facts())
        name, origins = f"core{len(self.low.nodes)}", self.low.origins()
        views = tuple(map(_view, given)), tuple(map(_view, made))
        raises = self.device.type == "cpu" and any(True for _ in self.body.checks())
        self.low.add_node(CoreNode(name, core, *views, facts, self.device, origins, may_raise=raises))
        return tuple(made)

    def _in_rows(self, x: Any) -> Strided:
        """What bodies read, in memory. Kernels read it by blocks of queries and keys, each as often as the axes that it lacks say: what is
        computed for them has rows of keys, and what lies there with other axes than these two innermost is copied once, since each read of
        such an element is one of a whole sector."""
        low, at = self.low, self.low.place(x)
        if at is None:
            return low.realize(x, contiguous_strides(x.sizes))
        of_scores = at.ndim >= 2 and all(
            same(a, b) and not same(a, 1) for a, b in zip(at.sizes[-2:], self.sizes[2:], strict=True)
        )
        is_repeated = any(same(step, 0) and not same(n, 1) for n, step in zip(at.sizes, at.strides, strict=True))
        if not of_scores or is_repeated or any(same(step, 1) for step in at.strides[-2:]):
            return _in_memory(low, at)
        return low.realize_with(at, contiguous_strides(at.sizes))

    def _recorded(self, texts: Mapping[str, str]) -> LoopBody:
        """The bodies in one, each defining a value."""
        results = {name: self._lowered(text) for name, text in texts.items()}
        recorder = Recorder(self.axes)
        with handling(recorder):
            for name, value in results.items():
                found = value.load(expand_map(value.sizes, self.sizes)(list(self.index)))
                recorder.define(name, found if name == "keep" else recorder.to_dtype(found, torch.float32))
        ranges = {a.var: (0, a.size - 1 if isinstance(a.size, int) else LONGEST) for a in self.axes}
        body = LoopBody(self.axes, (), tuple(narrowed(recorder.finish().instructions, ranges)))
        return with_early_floats(body, ranges) if self.device.type == "cuda" else body

    def _lowered(self, text: str) -> TensorValue:
        """The result of a body, whose values stay functions of the index."""
        low, graph = self.low, parse_graph(text)
        tensors, numbers = iter(self.captured), iter(self.numbers)
        given: list[Any] = [self._score(), *(self._index(d) for d in range(4))]
        given += [next(numbers if isinstance(i.spec, SizeSpec) else tensors) for i in graph.inputs[5:]]
        known: dict[Any, Size] = {}
        for i, value in zip(graph.inputs, given, strict=True):
            shown = [(i.spec.expr, value)] if isinstance(i.spec, SizeSpec) else zip(i.spec.sizes, value.sizes, strict=True)
            known.update((expr, size) for expr, size in shown if isinstance(expr, Expr))
        values: dict[Any, Any] = dict(zip(graph.placeholders, given, strict=True))

        def resolved(arg: Any) -> Any:
            if isinstance(arg, torch.fx.Node):
                return values[arg]
            if isinstance(arg, (tuple, list)):
                return type(arg)(map(resolved, arg))
            return substitute(arg, known) if isinstance(arg, Expr) else arg

        outer, nodes = (low.node, low.spec), len(low.nodes)
        try:
            for node in graph.calls:
                spec = node.meta["spec"]
                low.node = node
                low.spec = spec.replace(sizes=resolved(spec.sizes), strides=resolved(spec.strides))
                target: Any = node.target
                args, name = resolved(node.args), target.name
                if (why := fallback.reason(name, target, args, low.spec, low.options)) is not None:
                    raise Refused(f"in a function of scores: {why}")
                values[node] = LOWERINGS[name](low, *args)
        finally:
            low.node, low.spec = outer
            low.nodes[nodes:] = [
                n for n in low.nodes[nodes:] if getattr(n, "domain", "") != "check"
            ]  # the kernel checks what it reads
        return resolved(graph.outputs[0])

    def _score(self) -> Lazy:
        return Lazy(self.sizes, torch.float32, self.device, lambda index: ops.local("score", torch.float32), 0, frozenset())

    def _index(self, dim: int) -> Lazy:
        sizes = tuple(n if d == dim else 1 for d, n in enumerate(self.sizes))
        return Lazy(sizes, torch.int64, self.device, lambda index: ops.index_expr(index[dim], torch.int64), 0, frozenset())


__all__ = ["DEVICES", "attention", "attention_backward", "attention_decode", "attention_sums"]

"""Shape rules that differ between a CPU and a GPU; what a GPU gives was read off one."""

import contextlib
import itertools

import pytest
import torch
from tracework_primops import DECOMPS, FakeMode, GraphBuilder, PrimGraph, PrimValue, SymbolTable, TensorSpec, prims
from tracework_primops.decomp import select
from tracework_primops.fake.rules import rule_of

aten = torch.ops.aten
CUDA = torch.device("cuda", 0)
CHANNELS_LAST = (60, 1, 15, 3)


def specs(*sizes, device=CUDA, strides=None, dtype=torch.float32):
    return TensorSpec(dtype, device, sizes, strides or torch.empty(sizes).stride(), 0)


def test_log_sigmoid_keeps_a_buffer_on_a_cpu_only():
    forward = rule_of(aten.log_sigmoid_forward.default)
    for layout in (None, CHANNELS_LAST):
        out, buffer = forward(specs(2, 3, 4, 5, strides=layout))
        assert (out.strides, buffer.sizes) == (layout or (60, 20, 5, 1), (0,))
    cpu = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    found = forward(specs(2, 3, 4, 5, strides=CHANNELS_LAST, device=torch.device("cpu")))
    for mine, theirs in zip(found, aten.log_sigmoid_forward(cpu), strict=True):
        assert (mine.sizes, mine.strides) == (tuple(theirs.shape), theirs.stride())


def test_batch_norm_with_running_statistics_gives_them_back_on_a_gpu():
    x, c = specs(2, 3, 4, 5, dtype=torch.bfloat16), specs(3)
    found = rule_of(aten.native_batch_norm.default)(x, c, c, c, c, False, 0.1, 1e-5)
    assert [(s.sizes, s.dtype) for s in found[1:]] == [((3,), torch.float32)] * 2


def test_unpooled_values_are_row_major_on_a_gpu():
    x, indices = specs(2, 3, 4, 5, strides=CHANNELS_LAST), specs(2, 3, 4, 5, dtype=torch.int64)
    assert rule_of(aten.max_unpool2d.default)(x, indices, (8, 10)).strides == (240, 80, 10, 1)


def test_functional_batch_norm_gives_new_statistics():
    x, c = torch.randn(2, 3, 4), torch.rand(3)
    mode = FakeMode()
    with mode:
        fakes = [mode.from_real(t) for t in (x, c, c, c, c)]
        found = aten._batch_norm_with_update_functional(*fakes, 0.1, 1e-5)
    expected = aten._batch_norm_with_update_functional(x, c, c, c.clone(), c.clone(), 0.1, 1e-5)
    assert [tuple(f.shape) for f in found] == [tuple(e.shape) for e in expected]


def test_eigenvectors_are_row_major_on_a_gpu():
    for device, strides in ((CUDA, (25, 5, 1)), (torch.device("cpu"), (25, 1, 5))):
        assert rule_of(aten.linalg_eig.default)(specs(2, 5, 5, device=device))[1].strides == strides


def test_the_gradient_of_an_attention_bias_has_padded_rows():
    rule = rule_of(aten._efficient_attention_backward.default)
    x, lse, state = specs(2, 6, 4, 8), specs(2, 4, 32), specs(dtype=torch.int64)
    for bias, wanted, strides in (
        (None, True, None),
        (specs(2, 4, 6, 6), False, None),
        (specs(2, 4, 6, 6), True, (384, 96, 16, 1)),
    ):
        *found, of_bias = rule(x, x, x, x, bias, x, None, None, 6, 6, lse, 0.0, state, state, 0, wanted, scale=0.5)
        assert found == [x, x, x]
        assert (of_bias and of_bias.strides) == strides


@pytest.mark.parametrize("first, second", [("cpu", "cuda:0"), ("cuda:0", "cuda:1")])
def test_mixtures_that_eager_refuses(first, second):
    """Numbers and indices on the CPU go with any device; nothing else does."""
    here, there = torch.device(first), torch.device(second)
    x, mask = specs(3, 4, device=here), specs(3, 4, device=here, dtype=torch.bool)
    for value in (specs(device=there), specs(3, 4, device=there)):
        with pytest.raises(RuntimeError):
            rule_of(aten.masked_fill.Tensor)(x, mask, value)
    with pytest.raises(RuntimeError, match="on cpu or on the same device"):
        rule_of(aten.index.Tensor)(x, [specs(2, device=there, dtype=torch.int64)])
    number, rows = specs(device=torch.device("cpu")), specs(2, device=torch.device("cpu"), dtype=torch.int64)
    assert rule_of(aten.masked_fill.Tensor)(x, mask, number).device == here
    assert rule_of(aten.index.Tensor)(x, [rows]).device == here


def calls_with_numbers():
    """Every decomposed operator, called with a tensor on a GPU and single numbers on the CPU for its other tensors, where its rule takes that."""
    values = {"number": 1, "int": 0, "float": 0.5, "bool": False, "List[int]": [2, 3], "str": "none"}
    for operator, row in select("prims", None).items():
        arguments = [a for a in operator._schema.arguments if not a.kwarg_only]
        are_tensors = [str(a.type) in ("Tensor", "Optional[Tensor]") for a in arguments]
        if sum(are_tensors) < 2 or any(str(a.type).endswith("Tensor]]") for a in arguments):  # one tensor; a list of them
            continue
        for dtype, other in itertools.product((torch.float32, torch.int64, torch.bool), repeat=2):
            given = [values.get(str(a.type), a.default_value) for a in arguments]
            for place in (i for i, is_tensor in enumerate(are_tensors) if is_tensor):
                is_first = place == are_tensors.index(True)
                given[place] = specs(2, 3, dtype=dtype) if is_first else specs(device=torch.device("cpu"), dtype=other)
            with contextlib.suppress(Exception):  # the rule refuses them
                spec = rule_of(operator)(*given)
                if spec.__class__ is TensorSpec and spec.device == CUDA:
                    yield operator, row, given


def test_numbers_on_the_cpu_do_not_decide_the_device():
    """Decompositions give what they give on the device of the tensor."""
    names = set()
    for operator, row, given in calls_with_numbers():
        if operator is aten._adaptive_avg_pool2d_backward.default:  # eager refuses this on a GPU
            continue
        with GraphBuilder(torch.fx.Graph()) as builder:
            found = row(*(builder.wrap(builder.append(prims.full, (), v), v) if v.__class__ is TensorSpec else v for v in given))
        assert found is NotImplemented or found.spec.device == CUDA, operator
        names.add(operator)
    assert len(names) > 70 and aten.fill.Tensor in names


SUMS_AT_INDICES = {
    "index_put": lambda x, i, values: DECOMPS[aten.index_put.default](x, (i,), values, True),
    "unsafe_index_put": lambda x, i, values: DECOMPS[aten._unsafe_index_put.default](x, (i,), values, True),
}


@pytest.mark.parametrize("name", SUMS_AT_INDICES)
@pytest.mark.parametrize(
    ("device", "dtype", "summed"),
    [
        ("cuda", "bfloat16", "float32"),
        ("cuda", "float16", "float32"),
        ("cuda", "float32", "float32"),
        ("cpu", "bfloat16", "bfloat16"),
    ],
)
def test_sums_at_indices_are_rounded_once_on_a_gpu(name, device, dtype, summed):
    """As eager's, which sorts indices there; on a CPU it rounds each sum of two."""
    where, graph = CUDA if device == "cuda" else torch.device("cpu"), torch.fx.Graph()
    given = []
    for sizes, kind in (((7, 3), getattr(torch, dtype)), ((50,), torch.int64), ((50, 3), getattr(torch, dtype))):
        node = graph.placeholder("x")
        node.meta["spec"] = specs(*sizes, device=where, dtype=kind)
        given.append(PrimValue(node.meta["spec"], node))
    with GraphBuilder(graph):
        result = SUMS_AT_INDICES[name](*given)
    (put,) = [n for n in graph.nodes if n.target is prims.index_put]
    assert put.meta["spec"].dtype == getattr(torch, summed) and result.dtype == getattr(torch, dtype)


@pytest.mark.parametrize("rows", [1, 16, 17, 40, None])
@pytest.mark.parametrize(("inner", "columns"), [(64, 48), (61, 48), (64, 45), (61, 45)])
def test_int8_products_are_what_a_gpus_library_takes(rows, inner, columns):
    graph = torch.fx.Graph()
    builder = GraphBuilder(graph)
    given = [torch.randint(-128, 128, sizes, dtype=torch.int8) for sizes in ((rows or 9, inner), (columns, inner))]
    height = rows or SymbolTable().new(9, "x.size(0)")
    shapes = [specs(height, inner, strides=(inner, 1), dtype=torch.int8), specs(columns, inner, dtype=torch.int8)]
    values = []
    for spec in shapes:
        node = graph.placeholder("x")
        node.meta["spec"] = spec
        values.append(PrimValue(spec, node))
    with builder:
        found = DECOMPS[aten._int_mm.default](values[0], prims.permute(values[1], (1, 0)))
    graph.output((found.node,))
    assert (found.spec.sizes, found.spec.strides) == ((height, columns), (columns, 1))
    (product,) = [node for node in graph.nodes if node.target is prims.int_mm]
    a, b = (node.meta["spec"] for node in product.args)
    assert rows is None or a.sizes[0] > 16
    assert a.sizes[1] % 8 == b.sizes[1] % 8 == 0 and b.strides[0] == 1
    if rows is not None:
        (value,) = PrimGraph.from_fx(graph).run(*given)
        assert torch.equal(value, (given[0].int() @ given[1].int().t()))


def test_packed_weights_of_four_bits_have_eight_rows_together():
    x, packed, scales = (
        specs(3, 1024, dtype=torch.bfloat16),
        specs(64, 8, 32, 4, dtype=torch.int32),
        specs(8, 512, 2, dtype=torch.bfloat16),
    )
    mode = FakeMode()
    with mode:
        found = aten._weight_int4pack_mm(mode.make(x), mode.make(packed), 128, mode.make(scales))
        with pytest.raises(RuntimeError):
            aten._weight_int4pack_mm(mode.make(x), mode.make(scales), 128, mode.make(scales))
    assert (found.shape, found.dtype, found.device) == ((3, 512), torch.bfloat16, CUDA)

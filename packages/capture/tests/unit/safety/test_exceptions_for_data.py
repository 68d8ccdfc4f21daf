"""What operators may raise for some data, and which except clauses that matters to: a row for each operator, and for each form of clause."""

import linecache
import types

import pytest
import torch
import tracework_capture
from torch.nn import functional as F
from tracework_capture.graph import checks, raises
from tracework_primops import FakeMode

aten, linalg = torch.ops.aten, torch.linalg
X, IN, OUT = torch.arange(15.0).reshape(5, 3), torch.tensor([0, 2]), torch.tensor([0, 100])
SPREAD = torch.eye(3) * 2

INDEXED = {
    "gather": lambda x, i: x.gather(0, i[:, None]),
    "index_select": lambda x, i: x.index_select(0, i),
    "embedding": lambda x, i: aten.embedding(x, i),
    "index": lambda x, i: x[i],
    "take": lambda x, i: x.take(i),
    "index_put": lambda x, i: x.index_put((i,), x[:2]),
    "put": lambda x, i: x.put(i, x[0, :2]),
    "scatter": lambda x, i: x.scatter(0, i[:, None], 1),
    "scatter_add": lambda x, i: x.scatter_add(0, i[:, None], x),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i[:, None], x, "amax"),
    "index_add": lambda x, i: x.index_add(0, i, x[:2]),
    "index_copy": lambda x, i: x.index_copy(0, i, x[:2]),
    "index_fill": lambda x, i: x.index_fill(0, i, 1),
    "index_reduce": lambda x, i: x.index_reduce(0, i, x[:2], "amax"),
}
"""Those that move elements, of any dtype."""

OF_CLASSES = {
    "nll_loss": lambda x, i: F.nll_loss(x[:2], i),
    "nll_loss2d": lambda x, i: F.nll_loss(x[None, :, :2, None], i[None, :, None]),
    "multi_margin_loss": lambda x, i: F.multi_margin_loss(x[:2], i),
    "multilabel_margin_loss": lambda x, i: F.multilabel_margin_loss(x[0, :2], i - 1),
    "embedding_bag": lambda x, i: F.embedding_bag(i[None], x),
    "max_unpool2d": lambda x, i: aten.max_unpool2d(x[None, None, :2, :1], i[None, None, :, None], [5, 1]),
}

OTHERS = {
    "integers divided": (lambda x: 7 // x.long(), X[0] + 1, X[0]),
    "inv": (linalg.inv, SPREAD, X[:3]),
    "solve": (lambda x: linalg.solve(x, x[0]), SPREAD, X[:3] * 0),
    "cholesky": (linalg.cholesky, SPREAD, -SPREAD),
    "svd": (linalg.svd, SPREAD, SPREAD * torch.nan),
    "eigh": (linalg.eigh, SPREAD, SPREAD * torch.nan),
    "eig": (linalg.eig, SPREAD, SPREAD * torch.nan),
    "multinomial": (lambda x: torch.multinomial(x, 1), SPREAD, -SPREAD),
    "bernoulli": (lambda x: torch.bernoulli(x), SPREAD / 4, SPREAD * 4),
    "poisson": (torch.poisson, SPREAD, -SPREAD),
    "normal": (lambda x: torch.normal(0.0, x), SPREAD, -SPREAD),
    "histc": (lambda x: torch.histc(x, 3), SPREAD, SPREAD * torch.nan),
    "binary_cross_entropy": (lambda x: F.binary_cross_entropy(x, x), SPREAD / 4, SPREAD * 4),
    "masked_scatter": (lambda x: x.masked_scatter(x > 1, x[0, :3]), SPREAD, X[:3]),
    "segment_reduce": (lambda x: torch.segment_reduce(x, "sum", lengths=x.diag().long() + 1), SPREAD / 4, -SPREAD),
    "searchsorted": (lambda x: torch.searchsorted(x[0], x[0], sorter=x[1].long()), X[:3] * 0, X[:3]),
}


IMAGES = torch.tensor([0.0, -0.0, 1.0, -1e38, 1e38, torch.nan, torch.inf, -torch.inf]).repeat(1, 4, 8, 1)
QUIET = {
    "linear without a bias": lambda x: F.linear(x, x[0, 0]),
    "_is_all_true and _is_any_true": lambda x: (torch._is_all_true(x > 0), torch._is_any_true(x > 0)),
    "repeat": lambda x: x.repeat(1, 2, 1, 1),
    "rot90": torch.rot90,
    "diag_embed": torch.diag_embed,
    "trace": lambda x: x[0, 0].trace(),
    "copies of views": lambda x: (aten.view_copy(x, [-1]), aten.permute_copy(x, [0, 2, 1, 3]), aten.expand_copy(x, [2, 4, 8, 8])),
    "parts of copies": lambda x: (aten.split_with_sizes_copy(x, [3, 5], 2), aten.unbind_copy(x), x.unsafe_chunk(2, 1)),
    "select_scatter": lambda x: x.select_scatter(x[:, 0], 1, 0),
    "slice_scatter": lambda x: x.slice_scatter(x[..., :2], 3, 0, 2),
    "diagonal_scatter": lambda x: x[0, 0].diagonal_scatter(x[0, 0, 0]),
    "channel_shuffle": lambda x: F.channel_shuffle(x, 2),
    "pixel_shuffle": lambda x: F.pixel_unshuffle(F.pixel_shuffle(x, 2), 2),
    "unfold, fold": lambda x: F.fold(F.unfold(x, 2), 8, 2),
    "reflection_pad": lambda x: F.pad(x, (1, 1, 1, 1), "reflect"),
    "replication_pad": lambda x: F.pad(x, (1, 1, 1, 1), "replicate"),
    "masked_fill": lambda x: x.masked_fill(x > 0, 1),
    "addr": lambda x: torch.addr(x[0, 0], x[0, 0, 0], x[0, 0, 1]),
    "dist": lambda x: torch.dist(x, x),
    "hardswish": lambda x: F.hardswish(x.clone(), inplace=True),
    "activations": lambda x: (
        F.gelu(x),
        F.glu(x, 1),
        F.mish(x),
        F.logsigmoid(x),
        F.threshold(x, 1, 2),
        F.prelu(x, x[0, :, 0, 0]),
    ),
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "cummax": lambda x: (x.cummax(3), x.cummin(3)),
    "aminmax": lambda x: x.aminmax(),
    "medians": lambda x: (x.median(), x.nanmedian(3), x.kthvalue(2), torch.mode(x, 2)),
    "nansum": torch.nansum,
    "pools": lambda x: (F.adaptive_max_pool2d(x, 3), F.avg_pool3d(x, 2), F.max_pool3d(x, 2), F.adaptive_avg_pool3d(x, 3)),
    "grid_sample": lambda x: F.grid_sample(x, x[..., :2]),
    "interpolate": lambda x: [F.interpolate(x, 5, mode=m) for m in ("nearest", "nearest-exact", "bilinear", "bicubic")],
    "losses": lambda x: (F.mse_loss(x, x), F.smooth_l1_loss(x, x), F.huber_loss(x, x)),
}


def recorded(function, *args):
    """The exceptions of each operator that the call runs on fakes."""
    mode, effects = FakeMode(), checks.Effects()
    fakes = [mode.from_real(arg) for arg in args]
    with mode:
        mode.recorder = effects.note
        try:
            function(*fakes)
        finally:
            mode.recorder = None
    return [kind for raised in effects.raised for kind in raised]


@pytest.mark.parametrize(("function", "legal", "refused"), OTHERS.values(), ids=OTHERS)
def test_what_is_raised_for_data_is_in_the_table(function, legal, refused):
    function(legal)
    with pytest.raises(Exception) as seen:
        function(refused)
    assert type(seen.value) in recorded(function, legal)


@pytest.mark.parametrize("name", QUIET)
def test_what_no_data_makes_raise(name):
    QUIET[name](IMAGES)
    assert recorded(QUIET[name], IMAGES) == []


def test_names_of_quiet_operators():
    assert [name for name in raises._QUIET if not hasattr(aten, name)] == []


def test_what_is_written_to_an_input_is_no_output():
    """An operator that may raise is kept by the write that reads it."""

    def program(cache, table, index):
        cache.index_copy_(0, index, table[index])
        return cache.sum()

    report = tracework_capture.explain(program)(X.clone(), X, IN)
    (graph,) = report.graphs
    (output,) = (node for node in graph.graph.graph.nodes if node.op == "output")
    assert len(output.args[0]) == 1


@pytest.mark.parametrize("name", [*INDEXED, *OF_CLASSES])
def test_an_index_out_of_range(name):
    function = (INDEXED | OF_CLASSES)[name]
    with pytest.raises(Exception) as seen:
        function(X, OUT)
    assert type(seen.value) in (found := recorded(function, X, IN))
    assert NotImplementedError not in found and ValueError not in found


DTYPES = [d for d in dict.fromkeys(v for v in vars(torch).values() if isinstance(v, torch.dtype)) if "bits" not in str(d)]


@pytest.mark.parametrize("name", INDEXED)
def test_dtypes_without_a_kernel_raise_what_the_table_says(name):
    """Fakes do not refuse all of them."""
    lacking = []
    for dtype in DTYPES:
        try:
            x = X.to(dtype)
        except (RuntimeError, NotImplementedError):
            continue
        try:
            INDEXED[name](x, IN)
        except NotImplementedError:
            lacking.append(dtype)
            assert raises.OF_DTYPES[0] in raises.exceptions_for_data(aten.gather.default, (x, 0, IN), {}, x)
    assert not set(lacking) & raises._INDEXED_DTYPES


class OnGpu(torch.Tensor):
    """Says that it lies on a GPU."""

    @property
    def device(self):
        return torch.device("cuda", 0)


def on_gpu(tensor):
    return tensor.as_subclass(OnGpu)


X_GPU, I_GPU, MASK = on_gpu(X), on_gpu(IN), on_gpu(X[:, 0] > 1)
ON_GPUS = {
    "index_copy": (aten.index_copy_.default, (X_GPU, 0, I_GPU, X_GPU), X_GPU, ()),
    "index_copy of float8": (
        aten.index_copy_.default,
        (on_gpu(X.to(torch.float8_e5m2)), 0, I_GPU, X_GPU),
        X_GPU,
        raises.OF_DTYPES,
    ),
    "index": (aten.index.Tensor, (X_GPU, [None, I_GPU]), X_GPU, ()),
    "a host's index": (aten.index.Tensor, (X_GPU, [IN]), X_GPU, ()),
    "a cache of bytes": (aten.index_copy_.default, (on_gpu(X.byte()), 0, I_GPU, on_gpu(X.byte())), X_GPU, ()),
    "a mask's elements are counted": (aten.index_put.default, (X_GPU, [MASK], X_GPU), X_GPU, raises.OF_INDICES),
    "embedding": (aten.embedding.default, (X_GPU, I_GPU), X_GPU, ()),
    "nll_loss": (aten.nll_loss_forward.default, (X_GPU, I_GPU, None, 1, -100), (X_GPU, X_GPU), ()),
    "bincount": (aten.bincount.default, (I_GPU,), I_GPU, raises.OF_INDICES),
    "embedding_bag": (aten._embedding_bag.default, (X_GPU, I_GPU, I_GPU), (X_GPU,), raises.OF_INDICES),
    "integers divided": (aten.floor_divide.default, (I_GPU, I_GPU), I_GPU, ()),
    "factors": (aten.linalg_inv_ex.default, (X_GPU,), (X_GPU, I_GPU), raises.OF_ATEN),
}


@pytest.mark.parametrize(("operator", "args", "out", "expected"), ON_GPUS.values(), ids=ON_GPUS)
def test_kernels_of_a_gpu_raise_nothing_that_the_host_does_not_wait_for(operator, args, out, expected):
    with torch._C.DisableTorchFunctionSubclass():
        assert raises.exceptions_for_data(operator, args, {}, out) == expected


def test_attention_draws_where_it_drops_something():
    for dropout in (0.0, 0.5):
        effects = checks.Effects()
        effects.note(aten._scaled_dot_product_flash_attention.default, (X, X, X, dropout), {}, X)
        effects.note(aten._scaled_dot_product_efficient_attention.default, (X, X, X, None, True, dropout), {}, X)
        assert effects.random == (dropout > 0) and not effects.raised


# --- except clauses ----------------------------------------------------------------------------------------------------

KINDS = (ValueError, TypeError)
TEMPLATE = """
def program(x, index, seen):
    y = torch.ops.test_exceptions_for_data.counted(x)
    z = x.exp()
    try:
        seen.count += 1
        z = (x * 2)[index]
        seen.count += 1
    {leave}
        seen.count += 100
    return y + z.sum()
"""
FORMS = {
    "another class": ("except NotImplementedError:", 1),
    "classes of modules": ("except (ValueError, torch.linalg.LinAlgError):", 1),
    "two that are others": ("except TypeError:\n        seen.count += 50\n    except KeyError as error:", 1),
    "finally": ("finally:", 1),
    "other classes, and finally": (
        "except ValueError:\n        seen.count += 7\n    except KeyError:\n        pass\n    finally:",
        1,
    ),
    "the class": ("except IndexError:", 2),
    "a base of it": ("except LookupError as error:", 2),
    "one of a tuple": ("except (ValueError, Exception):", 2),
    "the second": ("except TypeError:\n        seen.count += 50\n    except IndexError:", 2),
    "all": ("except:", 2),
    "a name for a tuple": ("except KINDS:", 2),
    "an item, and a class": ("except (ERRORS[0], TypeError):", 2),
    "classes around a local name": ("except (TypeError, seen.error, ValueError):", 2),
    "one of two": ("except (IndexError if seen.count else ValueError):", 2),
    "a metaclass says yes": ("except Odd:", 1),
    "of a module": ("except module.Error:", 1),
    "raised again": ("except IndexError:\n        raise", 1),
}


AROUND = """
def program(x, index, seen):
    y = torch.ops.test_exceptions_for_data.counted(x)

    def inner():
        try:
            seen.count += 1
            return (x * 2)[index]
        {leave}

    try:
        z = inner()
    except {outer}:
        seen.count += 50
        z = x
    return y + z.sum()
"""
OUTER = {
    "another exception": ("except IndexError as error:\n            raise ValueError from error", "ValueError", 2),
    "one of finally": ("finally:\n            if seen.count > 5:\n                raise ValueError", "ValueError", 2),
    "the same": ("except IndexError:\n            raise", "ValueError", 1),
    "the same by its name": ("except IndexError as error:\n            raise error", "ValueError", 2),
    "the same, met": ("except IndexError:\n            raise", "LookupError", 2),
    "of what it calls": ("except IndexError:\n            int('x')\n            raise", "ValueError", 2),
    "of what it computes": ("except IndexError:\n            1 / (seen.count - 1)\n            raise", "ZeroDivisionError", 2),
    "of an attribute that it writes": ("except IndexError:\n            seen.fixed = 1\n            raise", "RuntimeError", 2),
}


class Claims(type):
    """Says that any class is one of its own."""

    def __subclasscheck__(cls, other):
        return True


class Odd(Exception, metaclass=Claims):
    """Catches what is of it all the same."""


class Seen:
    """What the program counts."""

    count, error = 0, IndexError

    @property
    def fixed(self):
        """Which cannot be written as it is wanted."""
        return 0

    @fixed.setter
    def fixed(self, value):
        raise RuntimeError


@torch.library.custom_op("test_exceptions_for_data::counted", mutates_args=("x",))
def counted(x: torch.Tensor) -> torch.Tensor:
    """A graph with it does not run again: it may do what its schema does not say."""
    return x.add_(1).sum()


@counted.register_fake
def _(x):
    return x.new_empty(())


def program_of(text, name):
    name = f"<{name}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    space = {"torch": torch, "KINDS": KINDS, "ERRORS": (IndexError,), "Odd": Odd, "module": types.ModuleType("module")}
    space["module"].Error = NotImplementedError
    exec(compile(text, name, "exec"), space)
    return space["program"], space


@pytest.mark.parametrize("form", FORMS)
def test_a_graph_is_cut_where_a_clause_may_be_for_the_exception(form):
    check(TEMPLATE.format(leave=FORMS[form][0]), form, FORMS[form][1])


@pytest.mark.parametrize("form", OUTER)
def test_what_a_handler_raises_meets_the_clauses_around_it(form):
    leave, outer, graphs = OUTER[form]
    check(AROUND.format(leave=leave, outer=outer), form, graphs)


def test_a_class_that_the_program_writes_to_a_module():
    check(
        TEMPLATE.replace("    try:", "    module.Error = IndexError\n    try:").format(leave="except module.Error:"), "written", 2
    )


def check(text, name, graphs):
    program, _ = program_of(text, name)
    made = []
    compiled = tracework_capture.optimize(lambda gm, given: made.append(gm) or gm.forward)(program)
    for index in (1, 3, 9):
        assert outcome(compiled, index) == outcome(program, index)
    assert len(made) == graphs


def outcome(run, index):
    x, seen = torch.full((4,), 0.5), Seen()
    try:
        return run(x, torch.tensor([index]), seen).tolist(), x.tolist(), seen.count
    except IndexError as error:
        return type(error), x.tolist()


def test_the_class_that_a_name_means_is_guarded():
    program, space = program_of(TEMPLATE.format(leave=FORMS["another class"][0]), "another class")
    compiled = tracework_capture.optimize(lambda gm, given: gm.forward)(program)
    for index in (1, 9):
        assert outcome(compiled, index) == outcome(program, index)
    space["NotImplementedError"] = IndexError
    assert outcome(compiled, 9) == outcome(program, 9)
    assert outcome(compiled, 9)[2] == 101


def test_what_a_write_to_an_input_needs_is_no_result():
    """Operators that may raise are results where a compiler would leave them out, and there alone."""

    def program(x, rows, at):
        new = x.roll(-1)
        new[at] = rows
        x.copy_(new)
        apart = rows.clone()
        apart[at] = 1.0
        return x.sum()

    made = []
    compiled = tracework_capture.optimize(lambda gm, given: made.append(gm) or gm.forward)(program)
    given = torch.arange(4.0), torch.ones(2), torch.tensor([0, 1])
    assert compiled(*given) == 5.0
    (results,) = next(iter(reversed(made[0].graph.nodes))).args
    assert [node.name for node in results] == ["sum_1", "clone"]

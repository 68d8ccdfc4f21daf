"""Programs of other people's suites that torch.compile captures whole, or in few graphs: CASES, name -> Case."""

from __future__ import annotations

import collections
import copy
import dataclasses
import inspect
import itertools
import operator
import typing
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.nn.attention
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CASES", "Case"]


@dataclasses.dataclass(frozen=True)
class Case:
    """A program and the argument lists it is called with in turn.

    most: graphs of all calls together, as many as torch 2.13 makes where no comment says otherwise; breaks: whether it breaks there, too.
    fullgraph: it is captured as a whole, with the numbers that it reads from tensors.
    """

    program: Callable[..., Any]
    calls: tuple[tuple[Any, ...], ...]
    most: int = 1
    breaks: bool = False
    fullgraph: bool = False


def _x(*sizes: int) -> torch.Tensor:
    return torch.arange(1.0, 1 + torch.Size(sizes or (4,)).numel()).reshape(sizes or (4,)) / 4


class Layer(NamedTuple):
    activation: Callable[[torch.Tensor], torch.Tensor]
    scale: float = 2.0


def namedtuple_field(x):
    layer = Layer(torch.relu)
    return layer.activation(x) * layer.scale


def namedtuple_argument(layer, x):
    return layer.activation(x) * layer.scale


def namedtuple_lambda(x):
    layer = Layer(lambda t: t + 1)
    return layer.activation(x)


def min_max_of_both(x):
    return min(max(x.sum(), 0), 1) + 1


def max_of_numbers_and_tensors(x):
    return max(1, x.sum(), 2.5) + min(x.mean(), x.sum(), 3)


def max_of_tensors(x):
    return x * max(x.mean(), x.sum(), x[0])


def max_given_back(x):
    low, high = x.min(), x.max()
    return max(low, high) + low


def clamped_number(x):
    return x * (1 - min(max(x.mean(), 0), 1)), min(max(x.mean(), 0), 1) + 1


def aten_on_numbers(x):
    return x + torch.ops.aten.add(4, 3.3)


def aten_scalars(x):
    return x * torch.ops.aten.mul(2, 3) - torch.ops.aten.sub(2.0, 3)


class Stack(list):
    pass


def extend_itself(x):
    a = Stack([x, x + 1])
    a.extend(a)
    return sum(a)


def made_by_class_of(x):
    parts = [x, x + 1]
    return parts.__class__([part * 2 for part in parts])


def made_by_class_of_tuple(x):
    parts = (x, x + 1)
    return type(parts)(part * 2 for part in parts), parts.__class__(parts)


def made_by_class_of_dict(x):
    parts = {"a": x}
    return parts.__class__(a=x + 1)


def next_of_a_text(x):
    return x + len(next("abc".__iter__()))


def iters_of_literals(x):
    return x + sum(next(each.__iter__()) for each in ([1], (2,), range(3, 4), {5: 1}, b"a"))


def returned_islice(x):
    return itertools.islice([x, x + 1, x + 2], 1, 3)


def returned_accumulate(x):
    return itertools.accumulate([x, x + 1, x + 2])


def returned_accumulate_by(x):
    return itertools.accumulate([x, x + 1, x + 2], operator.mul)


def returned_chain(x):
    return itertools.chain([x], (x + 1, 3))


def returned_repeat(x):
    return itertools.repeat(x + 1, 3)


def returned_takewhile(x):
    return itertools.takewhile(lambda pair: pair[0] < 2, [(1, x), (2, x + 1)])


def returned_dropwhile(x):
    return itertools.dropwhile(lambda pair: pair[0] < 2, [(1, x), (2, x + 1)])


def returned_product(x):
    return itertools.product([x, x + 1], [2])


def returned_begun(x):
    found = [
        itertools.chain([x], [x + 1, x + 2]),
        itertools.product([x, x + 1], [1, 2]),
        itertools.combinations([x, x + 1, x + 2], 2),
        itertools.repeat(x + 1, 3),
        itertools.islice([x, 1, 2, x + 3, 4], 1, None, 2),
        itertools.takewhile(lambda n: n < 2, [1, 1, 3, 0]),
        zip([x, x + 1], "ab"),
        iter([1, 2, 3].pop, 1),
    ]
    return x * 2, [next(each) for each in found], found


def returned_ended(x):
    parts = [itertools.islice([x], 1), itertools.repeat(x, 1), itertools.takewhile(bool, [1, 0, 1]), itertools.permutations([x])]
    return x * 2, [len(list(each)) for each in parts], parts


def returned_untouched(x):
    numbers = [1, 2, 3, 4]
    return x + 1, [
        itertools.dropwhile(lambda n: n < 3, numbers),
        itertools.filterfalse(lambda n: n % 2, numbers),
        itertools.compress(numbers, [1, 0, 1, 0]),
        itertools.pairwise([x, x + 1, x + 2]),
        itertools.zip_longest(numbers, [x], fillvalue=x),
        itertools.accumulate(numbers, initial=10),
        itertools.starmap(operator.add, [(x, 1)]),
        itertools.islice(itertools.cycle([x, 1]), 5),
    ]


def returned_islice_begun(x):
    found = itertools.islice([x, x + 1, x + 2], 0, 3)
    first = next(found)
    return first * 2, found


@dataclasses.dataclass
class Settings:
    scale: float
    shift: torch.Tensor


def in_of_a_tensor(x):
    return x + (1 in [torch.ones(1)])


def in_of_a_tensor_absent(x):
    return x + (x in [x])


def reseeded(x):
    torch.seed()
    return x + 1


def manual_seed(x):
    torch.manual_seed(3)
    return x + torch.rand(4)


def asks_fx_tracing(x):
    return x + 1 if torch.fx._symbolic_trace.is_fx_tracing() else x + 2


def asks_many(x):
    asked = (
        torch.jit.is_scripting(),
        torch.jit.is_tracing(),
        torch.onnx.is_in_onnx_export(),
        torch._C._get_tracing_state() is None,
    )
    return x + sum(asked)


def storage_size(x):
    return x + x.untyped_storage().size()


def storage_bytes(x):
    return x + x.untyped_storage().nbytes() + len(x.untyped_storage())


def shape_by_descriptor(x):
    return x + torch.Tensor.shape.__get__(x)[0]


def descriptors(x):
    return x + torch.Tensor.ndim.__get__(x) + torch.Tensor.requires_grad.__get__(x) + torch.Tensor.dtype.__get__(x).itemsize


class Weight(torch.nn.Parameter):
    def doubled(self):
        return self * 2


class WithWeight(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = Weight(torch.ones(4))

    def forward(self, x):
        return self.weight.doubled() + x


def numpy_ones_like(x):
    return x + torch.from_numpy(np.ones_like(x.numpy()))


def numpy_ones_like_tensor(x):
    return x + torch.from_numpy(np.ones_like(x))


def split_by_list(x, lengths):
    return [part * 2 for part in torch.split(x, lengths.tolist())]


def slice_from_item(x, t):
    return x[int(t) :] + 1


def slice_to_item(x, t):
    return x[: t.item()] + 1


def ones_repeated(x, t):
    u = t.item()
    return torch.ones(u).repeat(3) + 1


def numpy_number(x, y):
    return x + y, y / 2


def numpy_number_among_tensors(x, y):
    return x * (y / 2), x + (y - 1) * 0.5


def numpy_where(x, a):
    return np.where(x < 0.5, a, x)


def unused_pairs(x, pairs):
    for _name, _number in pairs:
        x = x + 1
    return x


def slice_from_tensor(x, index):
    return x[index:] + 1


def slice_to_tensor(x, index):
    return x[:index] * 2


def nested_kernels(x):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.MATH):
        x = x + 1
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
            torch._dynamo.graph_break()
            x = x * 2
        x = x - 3
    return x


def nested_managers(x):
    with torch.no_grad():
        x = x + 1
        with torch.autocast("cpu", dtype=torch.bfloat16):
            torch._dynamo.graph_break()
            x = x * 2
        x = x - 3
    return x


@torch._dynamo.allow_in_graph
def apply_settings(x, settings):
    return x * settings.scale + settings.shift


def allowed_with_dataclass(x):
    return apply_settings(x, Settings(2.0, x + 1))


class Changing(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.linear(x) * self.calls


class Growing(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = []

    def forward(self, x):
        self.steps.append(x.shape[0])
        return x + len(self.steps)


OPTIMIZED = torch.compile(torch.nn.Linear(4, 4), backend="eager")


class Tagged(torch.nn.Parameter):
    rank, parts = 2, {"a": 3}


class WithTagged(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = Tagged(torch.ones(4))

    def forward(self, x):
        return x * self.weight.rank + self.weight.parts["a"], isinstance(self.weight, torch.nn.Parameter)


@dataclasses.dataclass(frozen=True)
class Config:
    width: int
    activation: Callable[[torch.Tensor], torch.Tensor] = torch.relu
    norm: type = torch.nn.Identity


def dataclass_of_functions(x):
    config = dataclasses.replace(Config(2), width=3)
    found = dataclasses.asdict(config)
    return found["activation"](x) * found["width"], found["norm"] is config.norm, copy.copy(torch.relu) is config.activation


def numpy_function_of_tensor(x):
    return np.sin(x) + np.maximum(x, 0.5) * np.sqrt(x.shape[0])


def numpy_join_of_tensors(x):
    return np.stack([x, x + 1]), np.where(x > 0.5, x, 0)


def attributes_of_a_compiled_module(x):
    module = OPTIMIZED
    module.calls = getattr(module, "calls", 0) * 0 + 1
    return torch.nn.functional.linear(x, module.weight, module.bias) * module.calls + module.training


def compile_time_calls(x):
    from torch._dynamo.comptime import comptime

    y = x + 1
    comptime(lambda context: None)
    comptime.print_graph()
    return y * 2


class Router(torch.nn.Module):
    """Tokens to the experts that have room for them."""

    def __init__(self):
        super().__init__()
        self.gate = torch.nn.Parameter(_x(4, 3).sin())
        self.experts = torch.nn.Parameter(_x(3, 4, 4).cos())

    def forward(self, x):
        tokens, count = x.shape[0], self.gate.shape[1]
        room = int(1.25 * tokens / count) + 1
        chances, expert = (x @ self.gate).softmax(-1).max(-1)
        chosen = torch.nn.functional.one_hot(expert, count)
        place = (chosen.cumsum(0) - 1) * chosen
        kept = place.lt(room) * chosen
        sent = kept.unsqueeze(-1) * torch.nn.functional.one_hot(place.clamp(max=room - 1), room)
        done = torch.einsum("ecd,edf->ecf", torch.einsum("tec,td->ecd", sent.float(), x), self.experts)
        return torch.einsum("tec,ecd->td", sent * chances[:, None, None], done)


class Output(collections.OrderedDict):
    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def output_with_attributes(x):
    out = Output(loss=x.sum(), logits=x)
    out["hidden"] = (x, x + 1)
    return tuple(out.values()), out.logits + 1, getattr(out, "absent", None)


class Processor:
    def __init__(self, penalty):
        self.penalty = penalty

    def __call__(self, ids, scores):
        found = scores.gather(1, ids)
        return scores.scatter(1, ids, torch.where(found < 0, found * self.penalty, found / self.penalty))


class Processors(list):
    def __call__(self, ids, scores, **kwargs):
        for processor in self:
            takes = inspect.signature(processor.__call__).parameters
            scores = processor(ids, scores, **kwargs) if len(takes) > 2 else processor(ids, scores)
        return scores


def logits_processors(scores, ids):
    return Processors([Processor(1.5), Processor(0.5)])(ids, scores)


class Step:
    """Steps by name, made from a text."""

    known: typing.ClassVar = {}

    def __init_subclass__(cls, name=None, **kwargs):
        super().__init_subclass__(**kwargs)
        Step.known[name or cls.__name__] = cls

    @classmethod
    def build(cls, text):
        name, *numbers = text.split(":")
        return cls.known[name](*map(float, numbers))


class Times(Step, name="times"):
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x):
        return x * self.factor


def steps_from_a_text(x, text):
    for part in text.split("|"):
        x = Step.build(part)(x)
    return x


def best_path(scores, moves):
    best, came = scores[0], []
    for each in scores[1:]:
        best, where = (best[:, None] + moves).max(0)
        best = best + each
        came.append(where)
    path = [best.argmax()]
    for where in reversed(came):
        path.append(where[path[-1]])
    path.reverse()
    return torch.stack(path)


class Watched(torch.nn.Module):
    """A feature extractor by hooks that are removed again."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())

    def forward(self, x):
        seen = {}
        handles = [
            layer.register_forward_hook(lambda module, args, out, name=name: seen.update({name: out.mean()}))
            for name, layer in self.layers.named_children()
        ]
        try:
            y = self.layers(x)
        finally:
            for handle in handles:
                handle.remove()
        return y, seen


def written_by_matching(x, spec):
    match spec:
        case {"op": "add", "by": int(n) | float(n)}:
            return x + n
        case {"op": str(op), **rest} if rest:
            return getattr(x, op)(*rest["args"])
        case [first, *others]:
            return x * first + len(others)
        case Config(width=0) | None:
            return x
        case Config(width=n, activation=act):
            return act(x) * n


def counted(x):
    groups, counts, last, order = collections.defaultdict(list), collections.Counter(), collections.deque(maxlen=2), {}
    for i, row in enumerate(x):
        groups[i % 2].append(row)
        counts[f"k{i % 3}"] += 1
        last.append(row)
        order[i] = row
    return {k: torch.stack(v) for k, v in groups.items()}, counts.most_common(1), sum(last), list(order)


CASES: dict[str, Case] = {
    "namedtuple_field": Case(namedtuple_field, ((_x(),),)),
    "namedtuple_argument": Case(namedtuple_argument, ((Layer(torch.relu), _x()), (Layer(torch.sigmoid), _x())), 2),
    "namedtuple_lambda": Case(namedtuple_lambda, ((_x(),),)),
    "min_max_of_both": Case(min_max_of_both, ((_x(),), (-_x(),), (_x() / 100,))),
    "max_of_numbers_and_tensors": Case(max_of_numbers_and_tensors, ((_x(),), (-_x(),))),
    "max_of_tensors": Case(max_of_tensors, ((_x(),), (-_x(),))),
    "max_given_back": Case(max_given_back, ((_x(),), (-_x(),))),
    "clamped_number": Case(clamped_number, ((_x(),), (-_x(),), (_x() / 4,))),
    "aten_on_numbers": Case(aten_on_numbers, ((_x(),),)),
    "aten_scalars": Case(aten_scalars, ((_x(),),)),
    "extend_itself": Case(extend_itself, ((_x(),),)),
    "made_by_class_of": Case(made_by_class_of, ((_x(),),)),
    "made_by_class_of_tuple": Case(made_by_class_of_tuple, ((_x(),),)),
    "made_by_class_of_dict": Case(made_by_class_of_dict, ((_x(),),)),
    "next_of_a_text": Case(next_of_a_text, ((_x(),),)),
    "iters_of_literals": Case(iters_of_literals, ((_x(),),)),
    "returned_islice": Case(returned_islice, ((_x(),),)),
    "returned_accumulate": Case(returned_accumulate, ((_x(),),)),
    "returned_accumulate_by": Case(returned_accumulate_by, ((_x(),),)),
    "returned_chain": Case(returned_chain, ((_x(),),)),
    "returned_repeat": Case(returned_repeat, ((_x(),),)),
    "returned_takewhile": Case(returned_takewhile, ((_x(),),)),
    "returned_dropwhile": Case(returned_dropwhile, ((_x(),),)),
    "returned_product": Case(returned_product, ((_x(),),)),
    "returned_begun": Case(returned_begun, ((_x(),),)),
    "returned_ended": Case(returned_ended, ((_x(),),)),
    "returned_untouched": Case(returned_untouched, ((_x(),),)),
    "returned_islice_begun": Case(returned_islice_begun, ((_x(),),)),
    "in_of_a_tensor": Case(in_of_a_tensor, ((_x(),),)),
    "in_of_a_tensor_absent": Case(in_of_a_tensor_absent, ((_x(),),)),
    "reseeded": Case(reseeded, ((_x(),),)),
    "manual_seed": Case(manual_seed, ((_x(),),)),
    "asks_fx_tracing": Case(asks_fx_tracing, ((_x(),),)),
    "asks_many": Case(asks_many, ((_x(),),)),
    "storage_size": Case(storage_size, ((_x(),),)),
    "storage_bytes": Case(storage_bytes, ((_x(),),)),
    "shape_by_descriptor": Case(shape_by_descriptor, ((_x(),),)),
    "descriptors": Case(descriptors, ((_x(),),)),
    "parameter_subclass": Case(WithWeight(), ((_x(),),)),
    "numpy_ones_like": Case(numpy_ones_like, ((_x(),),)),
    "numpy_ones_like_tensor": Case(numpy_ones_like_tensor, ((_x(),),)),
    "split_by_list": Case(split_by_list, ((_x(6), torch.tensor([1, 2, 3])), (_x(6), torch.tensor([3, 2, 1]))), fullgraph=True),
    "slice_from_item": Case(slice_from_item, ((_x(6), torch.tensor(2)), (_x(6), torch.tensor(3))), fullgraph=True),
    "slice_to_item": Case(slice_to_item, ((_x(6), torch.tensor(2)), (_x(6), torch.tensor(3))), fullgraph=True),
    "ones_repeated": Case(ones_repeated, ((_x(6), torch.tensor(2)), (_x(6), torch.tensor(3))), fullgraph=True),
    "numpy_ints": Case(
        numpy_number, tuple((_x(), np.int64(n)) for n in (2, 3, 4, 5, 6, 7, 8, 9)), 2
    ),  # torch: 1; an int is a constant until it has changed
    "numpy_floats": Case(numpy_number, tuple((_x(), np.float64(n)) for n in (2, 3, 4, 5, 6, 7, 8, 9))),
    "numpy_number_among_tensors": Case(numpy_number_among_tensors, tuple((_x(), np.float32(n)) for n in (2, 3, 4, 5))),
    "numpy_int_among_tensors": Case(numpy_number_among_tensors, tuple((_x(), np.int64(n)) for n in (2, 3, 4, 5)), 2),  # as above
    "numpy_where": Case(numpy_where, tuple((_x().numpy(), np.float64(n)) for n in (0.5, 0.25, 0.75))),
    "numpy_where_arrays": Case(numpy_where, ((_x().numpy(), -_x().numpy()), (_x().numpy(), 1.0), (_x().numpy(), 2.0)), 3),
    "unused_pairs": Case(unused_pairs, tuple((_x(), [("a", n), ("b", n + 1)]) for n in (2, 3, 4))),
    "unused_texts": Case(unused_pairs, tuple((_x(), [(n, 1), (n + n, 2)]) for n in ("a", "b", "c"))),
    "slice_from_tensor": Case(slice_from_tensor, tuple((_x(6), torch.tensor(n)) for n in (2, 3, 4))),
    "slice_to_tensor": Case(slice_to_tensor, tuple((_x(6), torch.tensor(n)) for n in (2, 3, 4))),
    "nested_kernels": Case(nested_kernels, ((_x(),),), 3, breaks=True),  # torch: 2; leaving both managers is a piece of its own
    "nested_managers": Case(nested_managers, ((_x(),),), 2, breaks=True),
    "allowed_with_dataclass": Case(allowed_with_dataclass, ((_x(),),), 2, breaks=True),
    "changing_module": Case(Changing(), ((_x(),),) * 4, 4),
    "growing_module": Case(Growing(), ((_x(),),) * 4, 4),
    "parameter_class_attributes": Case(WithTagged(), ((_x(),),) * 2),
    "dataclass_of_functions": Case(dataclass_of_functions, ((_x(),),)),
    "numpy_function_of_tensor": Case(numpy_function_of_tensor, ((_x(),),)),
    "numpy_join_of_tensors": Case(numpy_join_of_tensors, ((_x(),),)),
    "attributes_of_a_compiled_module": Case(attributes_of_a_compiled_module, ((_x(),),) * 2, 2),
    "compile_time_calls": Case(compile_time_calls, ((_x(),),)),
    "checkpoint_wrapper": Case(checkpoint_wrapper(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU())), ((_x(),),)),
    "router": Case(Router(), ((_x(6, 4),),)),
    "output_with_attributes": Case(output_with_attributes, ((_x(),),)),
    "logits_processors": Case(logits_processors, ((_x(2, 4), torch.tensor([[0, 1], [2, 3]])),)),
    "steps_from_a_text": Case(steps_from_a_text, ((_x(), "times:2|times:3"),) * 2),
    "best_path": Case(best_path, ((_x(3, 4).sin(), _x(4, 4).cos()),)),
    "watched": Case(Watched(), ((_x(),),) * 2),
    "written_by_matching": Case(
        written_by_matching,
        tuple((_x(), spec) for spec in ({"op": "add", "by": 2}, {"op": "clamp", "args": (0, 1)}, [1, 2, 3], Config(2))),
        4,
    ),
    "counted": Case(counted, ((_x(4, 2),),)),
}

"""What programs do with tensors of wrapper subclasses, against eager: each scenario is run on a function as it is, and compiled."""

import gc
import weakref

import pytest
import torch
import tracework
from test_wrapper_subclasses import assert_same
from torch.utils._pytree import tree_map_only
from wrapper_subclasses import Two, plain, two

SCENARIOS = {}


def scenario(function):
    """A row of the table: call(function) compiles it, or gives it back."""
    SCENARIOS[function.__name__] = function
    return function


class Factor(torch.Tensor):
    """Products are by what it keeps beside its part, which is a property; another attribute is a slot."""

    __slots__ = ("held", "label")

    @staticmethod
    def __new__(cls, part, factor):
        return torch.Tensor._make_wrapper_subclass(cls, part.shape, strides=part.stride(), dtype=part.dtype)

    def __init__(self, part, factor):
        self.held, self.label, self.factor = [part], "label", factor

    @property
    def part(self):
        return self.held[0]

    def __tensor_flatten__(self):
        return ["part"], self.factor

    @classmethod
    def __tensor_unflatten__(cls, inner, context, size, stride):
        return cls(inner["part"], context)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        factor = next(arg.factor for arg in args if isinstance(arg, Factor))
        number = factor["number"] if isinstance(factor, dict) else factor
        if func is torch.ops.aten.mul.Tensor:
            number = -number if isinstance(number, bool) else number
            return cls(args[0].part * args[1] * number, factor)
        found = func(*tree_map_only(Factor, lambda t: t.part, args), **(kwargs or {}))
        return tree_map_only(torch.Tensor, lambda part: cls(part, factor), found)

    def read(self):
        return self.part * 1, self.label, self.factor if not isinstance(self.factor, dict) else dict(self.factor)


class OwnOperators(Two):
    def __add__(self, other):
        return self * 100 if isinstance(other, str) else super().__add__(other)

    def __len__(self):
        return 77

    def __bool__(self):
        return False


def trained(result, *leaves):
    """The result, and the gradients."""
    result.backward(torch.ones_like(result))
    return result, [leaf.grad for leaf in leaves]


@scenario
def tensors_that_share_a_part_and_do_not(call):
    def function(first, second, x):
        first.mul_(2)
        x.add_(1)
        return first + second

    compiled = call(function)
    for is_shared in (True, False, True):
        a, b = two(4, 6), two(4, 6, seed=3)
        second = Two(a.a, b.b) if is_shared else b
        x = a.b if is_shared else plain(4, 6)
        yield compiled(a, second, x), a, second, x


@scenario
def leaves_that_share_a_part(call):
    def function(first, second):
        with torch.no_grad():
            first.mul_(2)
        return first + second

    compiled = call(function)
    for is_shared in (False, True, False):
        a, b = two(4, 6).requires_grad_(), two(4, 6, seed=3)
        second = (Two(a.a, b.b) if is_shared else b).requires_grad_()
        yield trained(compiled(a, second), a, second), a.detach(), second.detach()


@scenario
def contexts_that_are_nearly_equal(call):
    compiled = call(lambda t: (t * 2).read())
    yield [compiled(Factor(plain(3, 4), factor)) for factor in (1, True, 1.0, 0.0, -0.0, 2, {"number": 2}, 1)]


@scenario
def a_context_that_is_changed_in_place(call):
    compiled, factor = call(lambda t: (t * 2).read()), {"number": 2}
    for number in (2, 3, 2):
        factor["number"] = number
        yield compiled(Factor(plain(3, 4), factor))


@scenario
def a_tensor_as_a_context(call):
    compiled, factor = call(lambda t: (t * 2).part), torch.tensor(2.0)
    for number in (2, 3, 2):
        factor.fill_(number)
        yield compiled(Factor(plain(3, 4), factor))


@scenario
def parts_behind_properties_and_slots(call):
    compiled = call(lambda t: (t.part + 1, (t * 3).part, t.label, (t * 2).label, (t * 2).held[0]))
    for seed in range(2):
        yield compiled(Factor(plain(3, 4, seed=seed), 2))


@scenario
def a_class_that_is_changed(call):
    class Changed(Two):
        pass

    compiled, t = call(lambda t: (t * 2).a), Changed(plain(3, 4), plain(3, 4))
    yield compiled(t)
    Changed.__torch_dispatch__ = classmethod(lambda cls, func, types, args=(), kwargs=None: Two(args[0].a * 5, args[0].b))
    yield compiled(t)


@scenario
def operators_of_its_own(call):
    t = OwnOperators(plain(4, 6), plain(4, 6, seed=3))
    yield [call(f)(t) for f in (lambda t: t + "text", lambda t: len(t), lambda t: 1 if t else 2, lambda t: t + 1)]


@scenario
def histories_that_a_write_changes(call):
    def function(t, w):
        t.mul_(w)
        return t * 3

    compiled = call(function)
    for is_leaf in (False, True):
        w = two(4, 6, seed=3).requires_grad_()
        leaf = two(4, 6).requires_grad_(not is_leaf)
        t = leaf if is_leaf else leaf * 1
        result = compiled(t, w)
        yield trained(result + t, w), t.detach()


@scenario
def views_of_existing_tensors(call):
    compiled = call(lambda t: (t[1:].t(), *t.chunk(2), t.view(-1)[3:], t * 2))
    for is_leaf in (True, False):
        leaf = two(4, 6).requires_grad_()
        t = leaf if is_leaf else leaf * 3
        *views, last = compiled(t)
        for view in views:
            view.backward(torch.ones_like(view), retain_graph=True)
        t.a.detach().fill_(7)
        yield [view.detach() for view in views], [view._base is t for view in views], leaf.grad, trained(last, leaf)


@scenario
def a_write_to_a_view_reaches_the_history(call):
    leaf = two(4, 6).requires_grad_()
    t = leaf * 3
    call(lambda t: t[1:])(t).mul_(2)
    yield trained(t * 1, leaf)


@scenario
def a_write_to_a_leaf(call):
    try:
        call(lambda t: t.mul_(2))(two(4, 6).requires_grad_())
    except RuntimeError as error:
        yield str(error)


@scenario
def writes_are_counted(call):
    def function(t):
        t.mul_(2)
        t[1:].zero_()
        print(end="")
        t.add_(1)

    compiled = call(function)
    for _ in range(2):
        t, w = two(4, 6), two(4, 6, seed=3).requires_grad_()
        product = (t * w).sum()
        compiled(t)
        yield t._version, t
        try:
            product.backward(torch.ones_like(product))
        except RuntimeError as error:
            yield str(error)[:60]


@scenario
def gradients_of_gradients(call):
    compiled = call(lambda t, x: (x @ t.t()).sin())
    for _ in range(2):
        t, x = two(4, 6).requires_grad_(), plain(3, 6).requires_grad_()
        result = compiled(t, x)
        gradients = torch.autograd.grad(result, (t, x), torch.ones_like(result), create_graph=True)
        yield trained((gradients[0] ** 2).sum() + (gradients[1] ** 3).sum(), t, x), [g.detach() for g in gradients]


@scenario
def hooks_and_retained_gradients(call):
    def function(t):
        u = t * 2
        u.register_hook(lambda g: g * 3)
        v = u.sin()
        v.retain_grad()
        return v, v + 1

    compiled = call(function)
    for _ in range(2):
        t = two(4, 6).requires_grad_()
        v, result = compiled(t)
        yield trained(result, t, v)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w.t()

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g @ w * 2, g.t() @ x * 2


@scenario
def a_function_with_a_backward_of_its_own(call):
    compiled = call(lambda t, x: Doubled.apply(x * 2, t))
    for _ in range(2):
        t, x = two(4, 6).requires_grad_(), plain(3, 6).requires_grad_()
        yield trained(compiled(t, x), t, x)


@scenario
def transforms(call):
    yield call(lambda t: torch.vmap(lambda row: row * 2)(t))(two(4, 6))
    yield call(lambda t: torch.func.grad(lambda u: (u * t.a).sum())(t.b))(two(4, 6))


@scenario
def changes_of_what_the_program_made(call):
    def leaf(t):
        made = t.clone().requires_grad_()
        return made, made * 2

    def parameter(t):
        made = torch.nn.Parameter(t * 2)
        return made, made * 2

    for function in (leaf, parameter):
        made, result = call(function)(two(4, 6))
        yield trained(result, made), made.is_leaf
    yield call(lambda t: (t.clone().t_(), t.clone().unsqueeze_(0), (t * 2).detach_()))(two(4, 6))


@scenario
def the_function_of_a_base_class(call):
    class Asking(Two):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func is torch.sin:
                return torch.cos(args[0])
            return super().__torch_function__(func, types, args, kwargs or {})

    found = call(lambda t: (torch.sin(t), t.sin() * 2), fullgraph=True)(Asking(plain(3, 4), plain(3, 4)))
    yield [(t.a, t.b) for t in found]


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.filterwarnings("ignore::tracework.UncompiledWarning")
def test_as_in_eager(name):
    tracework.reset()
    expected = list(SCENARIOS[name](lambda function, **options: function))
    assert_same(list(SCENARIOS[name](tracework.compile)), expected)


@pytest.mark.parametrize("asks", [False, True])
def test_nothing_keeps_parts_alive(asks):
    """Histories of their own results would, which no collector of garbage sees."""
    tracework.reset()
    compiled = tracework.compile(lambda t: t.sin(), fullgraph=True)
    t = two(4, 6).requires_grad_(asks)
    part, result = weakref.ref(t.a), compiled(t)
    del t, result
    gc.collect()
    assert part() is None


@pytest.mark.filterwarnings("error::tracework.UncompiledWarning")
def test_steps_of_an_optimizer_are_compiled():
    """They write to leaves, behind autograd."""

    def trained_by(call):
        weight = torch.nn.Parameter(two(4, 6))
        optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
        step = call(optimizer.step)
        for seed in range(3):
            optimizer.zero_grad()
            trained(plain(3, 6, seed=seed) @ weight.t(), weight)
            step()
            yield weight.detach() * 1, weight._version

    tracework.reset()
    expected = list(trained_by(lambda function: function))
    assert_same(list(trained_by(tracework.compile)), expected)


SIZES = 3, 5, 7, 1
OF_ANY_SIZE = {
    "pointwise": (lambda t: t.sin() * 2, lambda n: [two(n, 6)]),
    "several dims": (lambda t: t @ t.t(), lambda n: [two(n, n + 1)]),
    "transposed": (lambda t: t * t.shape[0], lambda n: [two(6, n).t()]),
    "views": (lambda t: t.view(-1, 2) + t.numel(), lambda n: [two(n, 6)]),
    "nested": (lambda t: t * 2, lambda n: [Two(two(n, 6), two(n, 6))]),
    "weight": (lambda x, w: torch.nn.functional.linear(x, w).relu(), lambda n: [plain(n, 6), two(4, 6)]),
    "made inside": (lambda x: Two(x, x + 1), lambda n: [plain(n, 6)]),
}


@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize("name", OF_ANY_SIZE)
@pytest.mark.filterwarnings("ignore::tracework.UncompiledWarning")
def test_sizes_become_symbols(name, asks):
    """One graph for the first size, one for all others, one for size 1."""
    function, make = OF_ANY_SIZE[name]
    if asks and name == "made inside":
        pytest.skip("the constructor is given no history")
    compilations = []

    def backend(graph, inputs):
        compilations.append(graph)
        return graph

    def results(call):
        for size in SIZES:
            given = [t.requires_grad_(asks) for t in make(size)]
            result = call(*given)
            yield trained(result, *given) if asks else result

    tracework.reset()
    expected = list(results(function))
    assert_same(list(results(tracework.compile(function, fullgraph=True, backend=backend))), expected)
    assert len(compilations) == 3
    assert_same(list(results(tracework.compile(function, fullgraph=True))), expected)

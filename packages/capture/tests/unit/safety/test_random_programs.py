"""Random programs: captured and plain runs agree in results, exceptions, side effects and output."""

import random
import warnings
from pathlib import Path

import pytest
import torch
import tracework_capture
from agreement import Disagreement, EvaluatorLimit, check, eager
from programs import SIGNATURE, generate, module

warnings.filterwarnings("ignore", category=SyntaxWarning)


@pytest.mark.parametrize("block", range(0, 90, 10))
def test_fixed_sample(block):
    """Not drawn by hypothesis, which takes constants of whatever modules are loaded: other programs after other tests. What any frame
    evaluator changes is a row of FUZZ.md, and may meet one program of a block."""
    limits = []
    for seed in range(block, block + 10):
        try:
            check(module(generate(random.Random(seed))))
        except EvaluatorLimit as limit:
            limits.append((seed, limit))
    assert len(limits) <= 1


FAILED = sorted((Path(__file__).parent / "failed").glob("*.txt"))


@pytest.mark.parametrize("path", FAILED, ids=lambda path: path.stem)
def test_seeds_that_once_failed(path):
    """Each file is the function that a seed gave when it failed; what a seed gives changes with the generator."""
    check(module(path.read_text()))


PROGRAMS = {
    "class attribute shadowed by a nearer class": "    return Derived.make(y).value, Derived.total",
    "a name that is missing": "    return missing + x",
    "generator left in the middle": "    for i in counter(3):\n        for row in x:\n            return row + i",
    "exception through a grad mode block": "    with torch.enable_grad():\n        del obj.extra",
    "identity of numbers": "    v = x\n    if 3 in obj.step(next(iter(items))):\n        pass\n    else:\n        v += 1\n    return v",
    "a second exception while the first is handled, after breaks": (
        "    try:\n        for i in map(abs, [-1, 2]):\n            assert x.sum() > 1e9\n    except Exception as error:\n"
        "        LOG.append(error.args)\n        for j in range(2):\n            assert (y + x) is x, 'second'\n    return y"
    ),
    "order of free variables after two breaks": (
        "    v = int((x.max() * 2).sum())\n    def inner(p, q=obj):\n        x.zz = items\n    print(n, word, items)\n    return y"
    ),
    "an attribute that is set and deleted again": "    obj.extra = n\n    del obj.extra\n    return x + y",
    "a view of a leaf changed in place": "    x[0].unsqueeze_(0)\n    return x + y",
    "one of several views after a write to their base": (
        "    for row in x:\n        x.detach().mul_(2)\n        if row.roll(1, 0).sum() > 99: return row"
    ),
    "a view whose history cannot be asked for, after a backward": (
        "    p = torch.ones(2, requires_grad=True)\n    q = p * 2\n    q.sum().backward()\n    with torch.no_grad():\n        row = q[:1]\n"
        "    q.mul_(3)\n    def f(): return row\n    brk(n)\n    return f() is row"
    ),
    "names of types of C modules in messages": (
        "    for value in (y.numpy(), collections.deque(), collections.OrderedDict(), items, word):\n        try: value.missing\n"
        "        except AttributeError as error: LOG.append(str(error))\n    return y + 1"
    ),
    "a mask that does not fit": (
        "    try:\n        (x * y)[x[0] > 0] = 1.0\n    except IndexError as error:\n        LOG.append(error.args)\n    return y"
    ),
    "a module that is being made in a frame of its own": (
        "    made = Net()\n    made.register_buffer('more', x.detach())\n    print(n)\n    return made(x) + made.seen, len(made.inner)"
    ),
    "slots that are empty, and filled later": (
        "    s = SHARED.setdefault('slots', Slots(1))\n    v = x + getattr(s, 'b', 5)\n    s.b = n\n    return v + hasattr(s, 'b')"
    ),
    "free variables in a decorated function": (
        "    @functools.lru_cache(None)\n    def f(p, q=n):\n        if flag: pass\n        else: v = y\n    return y"
    ),
    "unions with the dict of an instance": (
        "    mine, made = vars(obj), vars(Base(n))\n    try:\n        made |= {'z': x}\n"
        "        LOG.append((mine | table, table | mine, mine | made))\n    except TypeError as error:\n        LOG.append(str(error))\n"
        "    return x + 1"
    ),
    "an iterator over a dict that got a key before it, at a break": (
        "    found = table.items()\n    table['late'] = n\n    LOG.append(sorted(map(str, found)))\n    return x + 1"
    ),
    "an error of numbers that are known while tracing": "    v = torch.tensor([n, n])\n    return v // 0",
    "texts of open sizes that are added to others": "    return f'{n:+,d}' + str(x.shape[1:]) + word, x + 1",
    "a format that does not fit a number that changes": (
        "    try: word += f'{items[0] * 0.5:+d}'\n    except ValueError as error: LOG.append(error.args)\n    return x + 1"
    ),
    "where a graph that only computes raises": (
        "    def f(p):\n        return p.index_select(0, torch.tensor([n]))\n    v = x * 2\n    return f(v)"
    ),
    "a method that is computed before its arguments": (
        "    class C:\n        def __getattribute__(self, name):\n            LOG.append(name)\n"
        "            return super().__getattribute__(name)\n        def f(self, p):\n            return p * 2\n"
        "        @property\n        def g(self):\n            LOG.append('g is read')\n            return self.f\n"
        "    return C().f(brk(y)), C().g(peek(y))"
    ),
    "iterators over tensors": "    i = iter(y)\n    next(i)\n    return iter(x), i, [*i][:1]",
    "numbers of two kinds that change": "    LOG.append(sorted(items))\n    return x + 1",
    "lists and subclasses of list": "    return x + 1, [1] + items, [1] + Stack(items), Stack(items) + [1]",
    "texts of open sizes and what is asked of them": (
        "    s = str(x.shape)\n    return x + 1, s + 'k', s * 2, s[1:4], len(s), '2' in s, '-'.join([s]), max(word, s), [*map(abs, items[:1])]"
    ),
    "arguments that eager refuses": (
        "    try:\n        with torch.set_grad_enabled(flag): LOG.append(torch.is_grad_enabled())\n"
        "    except TypeError as error: LOG.append(error.args)\n"
        "    try: (y * 1).requires_grad_(flag)\n    except (TypeError, RuntimeError) as error: LOG.append(error.args)\n"
        "    try: LOG.append([*itertools.repeat(1, n)])\n    except TypeError as error: LOG.append(error.args)\n"
        "    try: abs(word)\n    except TypeError as error: LOG.append(error.args)\n    return x + 1"
    ),
    "a history that a backward inside used up": "    v = x * y\n    if x.requires_grad: (v * v).sum().backward()\n    return v",
    "where an exception was raised that leaves a block after a break": (
        "    with threading.Lock():\n        v = x + 1\n        def f(p):\n            return p + missing\n        return f(v)"
    ),
    "what a __hash__ of the program gives": (
        "    class C:\n        def __init__(self, p): self.p = p\n        def __hash__(self): return self.p\n"
        "    v = x + 1\n    return v, [hash(C(k)) for k in (-1, 0, 2**61, -2**63, 2**63, 2**63 - 1, True)], hash(Key(word, n)) == hash((word, n))"
    ),
    "counting from a bool": "    return x + 1, [*itertools.islice(itertools.count(n), 2)], [*itertools.islice(itertools.count(n, 2), 2)]",
    "a view that is detached in place": (
        "    try: x.detach_()\n    except RuntimeError as error: LOG.append(error.args)\n    return x * 2"
    ),
    "what lru_cache wraps is asked with a number that changes": (
        "    @functools.lru_cache(None)\n    def f(q):\n        LOG.append(q)\n        return q\n    return x * f(n) + f(n)"
    ),
    "what lru_cache wraps sees what was written before": (
        "    @functools.lru_cache(maxsize=None)\n    def f(q):\n        LOG.append(q)\n        return q if q < 2 else f(q - 1) + f(q - 2)\n"
        "    LOG.append((f(5), f(5), f.cache_info().misses))\n    return x + f(3)"
    ),
    "gradients that are kept, in another order": (
        "    q = y.detach().clone().requires_grad_() * 2\n    q.retain_grad()\n    v = q * torch.nn.functional.pad(y, (1, -1))\n"
        "    v.sum().backward(retain_graph=True)\n    first = q.grad\n    v.sum().backward()\n    return first, q.grad"
    ),
    "gradients that are kept after hooks": (
        "    q = y.detach().clone().requires_grad_() * 2\n    q.register_hook(lambda g: g * 3)\n    q.retain_grad()\n"
        "    (q * y).sum().backward()\n    return q.grad"
    ),
    "a tensor that was to keep its gradient, detached since": (
        "    q = y.detach().clone().requires_grad_() * 2\n    q.retain_grad()\n    q.detach_()\n    return x + 1, q, q.requires_grad"
    ),
    "an index that is a known mask": "    return x[torch.tensor([i > 0 for i in range(x.shape[0])])], x[..., torch.tensor([True] * x.shape[-1])]",
    "items are added, and their keys asked for, before the next is fetched": (
        "    def g():\n        for i in (3, 1, 2):\n            LOG.append(i)\n            yield i\n"
        "    LOG.append((max(g(), key=lambda i: LOG.append(-i) or -i), math.prod(g())))\n"
        "    def h():\n        yield x\n        raise KeyError\n"
        "    try: sum(h(), torch.ones(9, 8, 7))\n    except Exception as error: LOG.append(type(error).__name__)\n    return x + 1"
    ),
    "an index of one number, in a dim": (
        "    v = x[:1]\n    return v[torch.tensor([True] * v.shape[0])], v[torch.tensor([0])], v[torch.tensor(0)], "
        "x.tensor_split(torch.tensor([1]))"
    ),
    "an exception that leaves at a break, and generators of the frames that it left": (
        "    g = counter(2)\n    (next(g), g.send(int))\n    net.zero_grad()"
    ),
    "arrays as keys": (
        "    a, b = x.detach().numpy()[:2]\n    for look in (lambda: {a: n, 'k': b}, lambda: {a, b}, lambda: a in table, lambda: hash(a)):\n"
        "        try: look()\n        except TypeError as error: LOG.append(error.args)\n    return x + 1"
    ),
    "arrays with a dim of size 1 that are not in C order": (
        "    a = np.asarray(y.t()[..., None].detach())\n    return torch.from_numpy(a * 2), torch.from_numpy(np.sqrt(abs(a)))"
    ),
    "slots beside a __dict__": (
        "    class C:\n        __slots__ = ('a', 'b', '__dict__')\n    o = C()\n    o.a, o.b, o.c = x, 2, 3\n    kept = brk(o)\n"
        "    LOG.append((sorted(vars(kept)), sorted(kept.__dict__)))\n    del kept.b\n    kept.a = y\n"
        "    LOG.append((sorted(kept.__dict__), hasattr(kept, 'b')))\n    try: del kept.b\n"
        "    except AttributeError as error: LOG.append(error.args)\n    return kept.a + 1"
    ),
    "a __dict__ goes past __delattr__": (
        "    class C:\n        def __delattr__(self, name): LOG.append(name)\n    o = C()\n    o.a = 1\n"
        "    return vars(o).pop('a'), vars(o), x + 1"
    ),
    "which of equal members an intersection has": (
        "    a, b = {1, 2, 0}, frozenset([True, 7, 0.0, -0.0, n])\n"
        "    LOG.append((a & b, b & a, a.intersection([True, 2.0]), a.intersection({True: 1})))\n"
        "    v, w = {1: 2}.keys(), {True: 1, 3: 4}.keys()\n"
        "    LOG.append((v & {True}, v & {True, 3}, w & {1}, v & w, w & v, {True} & v, {1, 2, 5} & w, v & [True, True]))\n"
        "    a &= b\n    LOG.append(a)\n    return x + 1"
    ),
    "the class of a union of relatives of dict": (
        "    made = collections.defaultdict(list, l=[1])\n    return [Bag(a=1) | made, made | Bag(a=1), {} | made, made | {}, "
        "collections.OrderedDict(k=1) | made, {} | collections.OrderedDict(k=1), Bag(a=1) | {}], x + 1"
    ),
    "the order of keys that are set again": (
        "    table |= {1: 1, 2: 2}\n    table |= {1: 1}\n    SHARED['late'] = 1\n    del SHARED['a']\n    SHARED['a'] = 1\n    SHARED['later'] = 1\n"
        "    SHARED['a'] = 2\n    return x + 1"
    ),
    "iterators over a list that got items before": (
        "    items.append(n)\n    LOG.append(reversed(items).__length_hint__())\n    for k in [*brk([1])]:\n        v = x + k\n        brk(k)\n"
        "    return v"
    ),
    "what was taken from an iterator before it raised, and what it sees of what takes it": (
        "    def g(l):\n        for p in (5, 6, 'a'):\n            LOG.append(len(l))\n            yield int(p)\n"
        "    def pairs(d):\n        for p in g(d): yield p, x\n"
        "    made = [1], collections.deque([], 1), set(), collections.Counter(), items\n    brk(1)\n"
        "    for l in made:\n        try: l.update(g(l)) if hasattr(l, 'update') else l.extend(g(l))\n"
        "        except Exception as error: LOG.append((type(error), error.args))\n"
        "    l, d, e = collections.deque(), {}, {}\n"
        "    for f in (lambda: l.extendleft(g(l)), lambda: d.update(pairs(d)), lambda: e.update([(1, 2), (3,)]), lambda: vars(obj).update(\n"
        "        (k, int(k)) for k in '3a')):\n"
        "        try: f()\n        except Exception as error: LOG.append((type(error), error.args))\n"
        "    brk(1)\n    return made, l, d, e, x + 1"
    ),
    "length_hint of what has no length": (
        "    class C:\n        def __getitem__(self, k): return k\n    class D(C):\n        def __length_hint__(self): return 9\n"
        "    brk(1)\n    for given in (C(),), (C(), 4), (D(),), (n,), (items,), (x.sum(),), (iter(items),):\n"
        "        try: LOG.append(operator.length_hint(*given))\n        except TypeError as error: LOG.append(error.args)\n"
        "    brk(1)\n    return x + 1"
    ),
    "sizes and strides of dims that are not there": (
        "    for p in x, x.sum():\n        for f in p.size, p.stride:\n            for k in (0, -1, 7, -3, n, 'a', 1.0, None, True):\n"
        "                try: LOG.append(f(k))\n                except (IndexError, TypeError) as error: LOG.append(error.args)\n    return x + 1"
    ),
    "how the gradient of what is viewed in place lies in memory": (
        "    v = y.clone()\n    if v.shape == x.shape: v.copy_(x)\n    v.unsqueeze_(0).squeeze_(0)\n    v.t_()\n    return v"
    ),
    "a comprehension with the name of a cell, which breaks": (
        "    v = [brk(i) for i in items]\n    LOG.append([k for k in [1] if brk(k)])\n    i = k = n\n    return (lambda: i + k)(), x + 1, v"
    ),
    "tensors as keys of dicts and sets that exist already": (
        "    d, s = SHARED.setdefault('d', {}), SHARED.setdefault('s', set())\n    LOG.append((x in d, (x, 1) in d, len(d), x in s, len({x, y} | s)))\n"
        "    made = {x: 1, y: 2}\n    brk(made)\n    for k in made:\n        made[k] = 1\n        LOG.append((k * 2).shape)\n        brk(1)\n"
        "    d[x] = d[x, 1] = 1\n    s.add(x)\n    return x + 1"
    ),
    "how gradients lie in their memory": (
        "    for p in (y.t(), y.t()[None].sort(-1).values.detach().clone(), torch.zeros(2, 3, 2)[..., :1], y.expand(2, *y.shape)):\n"
        "        p = p.detach().requires_grad_()\n        q = y.detach().t()\n"
        "        try: (p * q).sum().backward()\n        except RuntimeError: continue\n"
        "        LOG.append((p.grad, p.grad.stride()))"
    ),
    "a write to what a backward inside used up": (
        "    a = x.real.clone()\n    b, c = a.view(-1), a.t()\n    b[5:] += 1\n    if a.requires_grad: (a * a).sum().backward()\n    brk(1)\n"
        "    LOG.append(c._version)\n    c += 1\n    a.mul_(2)\n    c.t().add_(1)\n    return a, b, c"
    ),
    "views in place count as writes": (
        "    a = y.exp()\n    a.unsqueeze_(0)\n    b, c = (x * 2).amin(-1, keepdim=True), (x * y).detach()\n    b.squeeze_()\n"
        "    c.t_()\n    LOG.append((a._version, b._version, c._version))\n    return a * 1, b * 1, c"
    ),
    "writes that read what they wrote": (
        "    y[...] *= y.diagonal(0, -2, -1)[:1] + y.diagonal(0, -2, -1)\n    y.t().add_(y.diagonal(0, -2, -1)[:1])\n    return y"
    ),
    "the context of an exception whose caller handles another": (
        "    def f(p):\n        try: raise KeyError(n)\n        except Exception as error:\n"
        "            LOG.append(type(error.__context__).__name__)\n        return p + 1\n"
        "    def g(p):\n        try: yield p\n        finally: LOG.append(f(p))\n    i = brk(g(x))\n    next(i)\n    brk(i).close()\n    return f(x)"
    ),
    "special methods that give what Python refuses": (
        "    class C:\n        def __init__(self, p): self.p = p\n"
        "        __len__ = __bool__ = __index__ = __str__ = __repr__ = __iter__ = lambda self: self.p\n"
        "    for p in (n, 2, True, -1, 2.5, 'a', None, 1 << 70):\n"
        "        for f in (len, bool, str, repr, iter, lambda o: 'a' * o, lambda o: o * [1], lambda o: not o):\n"
        "            try: LOG.append((p, f(C(p))))\n"
        "            except (TypeError, ValueError, OverflowError) as error: LOG.append((type(error).__name__, error.args))\n    return x + 1"
    ),
    "lists that hold memory of overlapping elements": (
        "    for tensors in [y, x], [x, y]:\n        try: torch._foreach_mul_(tensors, 2.0)\n"
        "        except RuntimeError as error: LOG.append(str(error))\n    return x + 1"
    ),
    "what is chosen where there is nothing": (
        "    for choose in torch.argmax, torch.max, lambda t: t.argmin(0), lambda t: t.max(0):\n        try: LOG.append(choose(x[:0]))\n"
        "        except (IndexError, RuntimeError) as error: LOG.append((type(error), str(error)))\n    return x + 1"
    ),
    "sorted in an order that is no bool": (
        "    for p in (items, None, 1.5, 0, '', n, 1 << 40):\n        l = [1, 3, 2]\n"
        "        for f in (lambda: l.sort(reverse=p), lambda: sorted(l, reverse=p)):\n            try: LOG.append((f(), l))\n"
        "            except (TypeError, OverflowError) as error: LOG.append(error.args)\n    return x + 1"
    ),
    "strides of arrays without elements": (
        "    a = x.detach().numpy()\n    for b in (a, a[:0], a[:0] * 2, np.zeros((0, 3)).T):\n"
        "        LOG.append((b.strides, torch.from_numpy(b).stride(), torch.as_tensor(b).stride()))\n    return x + 1"
    ),
    "a copy that does not fit, of sizes that change": "    torch.empty_like(y[:, :0]).copy_(y)\n    torch.manual_seed(-1)\n    return n",
    "exceptions from several places that cross a break": (
        "    def f(p):\n        try:\n            if n == 3: raise KeyError(n)\n            if flag: raise ValueError(n)\n            raise Oops(n)\n"
        "        finally: brk(p)\n    try: f(x)\n    except Exception as error: LOG.append((type(error), error.__traceback__.tb_next.tb_lineno))\n"
        "    with Guarded(LOG, True):\n        if n == 3: raise KeyError(n)\n        if flag: raise ValueError(n)\n        raise Oops(n)"
    ),
    "what is printed to another stream": (
        "    with contextlib.redirect_stdout(io.StringIO()) as o:\n        print(word, n)\n        v = torch.topk(x, 1).values\n"
        "    LOG.append(o.getvalue())\n    return v"
    ),
    "operators that tensors have not, or of their own": (
        "    a = b = y.detach().t() @ y.detach()\n    a @= a + 1\n    c = np.ones((2, 2))\n    d = c\n    c @= c\n"
        "    try: round(x)\n    except TypeError as error: LOG.append(error.args)\n"
        "    return a, b, a is b, c is d, c, reversed(x), [*reversed(x)], reversed(x.sum())"
    ),
    "a variable that a function shares, before it has a value": (
        "    def f(): return late\n    for i in range(3):\n        try: late = brk(i) + brk(i + 1) + late + brk(i)\n"
        "        except NameError as error: LOG.append((type(error).__name__, error.args))\n    late = brk(n)\n    return x + 1"
    ),
    "gradients that a training step leaves": (
        "    (net(y).sum() * net.scale).backward()\n    with torch.no_grad():\n        net.scale -= 0.1 * net.scale.grad\n"
        "    return net.scale.grad.clone()"
    ),
    "a metaclass that sees which names are asked for": (
        "    class M(type):\n        def __getattr__(cls, name):\n            LOG.append(name)\n            raise AttributeError(name)\n"
        "    class C(metaclass=M):\n        def f(self, p): return p + 1\n"
        "    table['o'] = C()\n    table['o'] = C()\n    v = table['o'].f(x)\n    for name in 'fg': hasattr(C, name)\n    return v"
    ),
    "descriptors that see who reads them": (
        "    class D:\n        def __init__(self, f): self.f = f\n        def __get__(self, instance, owner=None):\n"
        "            LOG.append((instance is None, owner.__name__))\n            return self if instance is None else self.f\n"
        "    class C:\n        f = D(lambda p: p + 1)\n    C.old, C.g = C.f, C.f.f\n    return C().f(x), C().old(y), C.f is C.old"
    ),
    "views of results whose history a backward used up": (
        "    p = y.detach().clone().float().requires_grad_()\n    q = p * 1\n    q.sum().backward()\n    a = (q + q).clone()\n    b = a.view(-1)\n"
        "    c = b[::2]\n    c.mul_(2)\n    LOG.append((c._base is a, b._base is a, a._version, c.requires_grad))\n    note(c)\n    c.add_(1)\n"
        "    return a, b, c, c._base is a, b._base is a, a._version, a._version == c._version"
    ),
}


@pytest.mark.parametrize("body", PROGRAMS.values(), ids=PROGRAMS)
def test_programs_that_once_failed(body):
    check(module(f"CALLS = (0, 0, 1, 5, 6, 7, 8, 9, 24, 4, 0)\n{SIGNATURE}{body}\n"))


@pytest.mark.parametrize("seed", [996, 4549, 9565])
def test_generated_texts_are_programs(seed):
    """These had an assignment expression in what a comprehension iterates over."""
    compile(generate(random.Random(seed)), "", "exec")


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_write_to_memory_that_an_input_shares_in_part(dynamic):
    """Eager refuses it, and the handlers of the frame run."""
    seen = []

    def f(x):
        try:
            x += x[..., :1]
        finally:
            seen.append(1)
        return x

    captured = tracework_capture.optimize(eager, dynamic=dynamic)(f)
    for function in f, captured:
        with pytest.raises(RuntimeError, match="refer to a single memory location"):
            function(torch.ones(3, 4).t())
    assert seen == [1, 1]


ENDS = f"""{SIGNATURE}
    class Ends:
        def __init__(self, name): self.name = name
        def __del__(self): LOG.append(self.name)
    def inner(p, given):
        made = Ends("made")
        return p + 1
"""


def test_what_any_frame_evaluator_changes():
    """It holds the arguments of a call until that has ended. That is told from what capture changes."""
    check(module(f"{ENDS}    given = Ends('given')\n    return inner(y, given)\n"))
    with pytest.raises(EvaluatorLimit, match="LOG differ"):
        check(module(f"{ENDS}    return inner(y, Ends('given'))\n"))
    with pytest.raises(Disagreement, match="outcome differ"):
        check(
            module(f"{ENDS}    z = y * 2\n    return inner(y, Ends('given')), z\n"),
            lambda gm, inputs: lambda *given: [r + 1 for r in gm.forward(*given)],
        )

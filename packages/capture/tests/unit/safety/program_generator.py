"""Random Python programs as source text: control flow, containers, closures, classes, generators, exceptions, tensor operations.

`generate(choices)` needs only choices.choice(sequence), choices.randint(a, b) and choices.random(): a random.Random, or what
hypothesis draws. Every program ends: loops have small bounds. Many raise: that is part of the test.
"""

from __future__ import annotations

__all__ = ["generate"]

HEADER = """\
import collections, contextlib, functools, itertools, math, operator
from dataclasses import dataclass
import torch

LOG = []
COUNT = 0
SHARED = {"a": 1, "b": [1, 2]}


@tracework_capture.disable
def note(*values):
    LOG.append([v.sum().item() if isinstance(v, torch.Tensor) else repr(v) for v in values])


def peek(value):
    LOG.append(value)
    return value


@contextlib.contextmanager
def scope(name, swallow=False):
    LOG.append("enter " + name)
    try:
        yield name
    except ValueError:
        LOG.append("caught in " + name)
        if not swallow:
            raise
    finally:
        LOG.append("leave " + name)


class Guarded:
    def __init__(self, log, swallow):
        self.log, self.swallow = log, swallow
    def __enter__(self):
        self.log.append("in")
        return self
    def __exit__(self, kind, value, trace):
        self.log.append("out" if kind is None else kind.__name__)
        return self.swallow and kind is not None and issubclass(kind, LookupError)


@dataclass
class Point:
    a: object
    b: int = 2
    def norm(self):
        return self.a * self.a + self.b


class Base:
    kind = "base"
    total = 0
    def __init__(self, value=1):
        self.value = value
        self.items = []
    def step(self, k):
        self.value = self.value + k
        self.items.append(k)
        return self
    @property
    def double(self):
        return self.value * 2
    @double.setter
    def double(self, v):
        self.value = v
    @classmethod
    def make(cls, v):
        cls.total += 1
        return cls(v)
    @staticmethod
    def plain(v):
        return v + 1
    def __len__(self):
        return len(self.items)
    def __getitem__(self, i):
        return self.items[i]
    def __call__(self, v):
        return v + self.value
    def __eq__(self, other):
        return isinstance(other, Base) and type(self.value) is type(other.value) and not isinstance(self.value, torch.Tensor) and self.value == other.value
    def __hash__(self):
        return 7
    def __contains__(self, v):
        return any(v is i for i in self.items)


class Derived(Base):
    kind = "derived"
    def step(self, k):
        LOG.append("derived")
        return super().step(k + 1)
    def __getattr__(self, name):
        if name.startswith("auto_"):
            return len(name)
        raise AttributeError(name)
    def __add__(self, other):
        return Derived(self.value + (other.value if isinstance(other, Base) else other))
    def __radd__(self, other):
        return Derived(other + self.value)
    def __iter__(self):
        for i in list(self.items):
            yield i


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(1.5))
        self.inner = torch.nn.ModuleList([torch.nn.PReLU(), torch.nn.Dropout(0.0)])
        self.register_buffer("seen", torch.zeros(()))
        self.gain = 2
    def forward(self, v, *, again=0):
        if self.training:
            self.seen += 1
        for part in self.inner:
            v = part(v.float())
        return self.forward(v, again=again - 1) if again > 0 else v * self.scale * self.gain


class Slots:
    __slots__ = ("a", "b")
    def __init__(self, a):
        self.a = a


Pair = collections.namedtuple("Pair", "left right")


class Oops(Exception):
    def __init__(self, what, code=3):
        super().__init__(what)
        self.code = code


def counter(n, log=LOG):
    try:
        for i in range(n):
            got = yield i
            if got:
                log.append(("sent", got))
    finally:
        log.append("counter ends")


def varargs(a, *rest, key=2, **more):
    return (a, rest, key, sorted(more))
"""

NETS = """

net = Net()

"""


class _Program:
    def __init__(self, choices):
        self.c = choices
        self.lines = []
        self.depth = 0
        self.names = 0
        self.budget = choices.randint(6, 30)
        self.loops = 0
        self.in_function = 0
        # name -> kind, of the variables in sight
        self.scope = {"x": "T", "y": "T", "n": "I", "flag": "B", "items": "L", "table": "D", "obj": "O", "word": "S"}
        self.locals = set()

    # --- helpers
    def pick(self, kind):
        names = [n for n, k in self.scope.items() if k == kind]
        return self.c.choice(names) if names else None

    def fresh(self, kind):
        if self.c.random() < 0.35:
            old = [n for n, k in self.scope.items() if k == kind and n.startswith("v")]
            if old:
                return self.c.choice(old)
        self.names += 1
        return f"v{self.names}"

    def put(self, text):
        self.lines.append("    " * (self.depth + 1) + text)

    # --- expressions
    def expr(self, kind, deep=0):
        name = self.pick(kind)
        if name is not None and (deep > 2 or self.c.random() < 0.3):
            return name
        if deep > 2:
            return _LITERALS[kind]
        forms = _EXPRESSIONS[kind]
        text = self.c.choice(forms)
        return self.fill(text, deep + 1)

    def fill(self, text, deep):
        out = []
        i = 0
        plain = text.startswith("f'")
        deep = 9 if text.startswith("f'") else deep  # quotes inside f-strings: names only before Python 3.12
        while i < len(text):
            if text[i] == "$":
                part = self.expr(text[i + 1], deep).replace("'", '"' if plain else "'")
                out.append(part if part.isidentifier() or text[i - 1 : i] == "{" else f"({part})")
                i += 2
            elif text[i] == "#":
                out.append(str(self.c.randint(-2, 5)))
                i += 1
            else:
                out.append(text[i])
                i += 1
        return "".join(out)

    # --- statements
    def block(self, least=1, most=3):
        self.depth += 1
        known = dict(self.scope)
        for _ in range(self.c.randint(least, most)):
            self.statement()
        # a variable that may be unbound afterwards is now and then still used: UnboundLocalError is a result, too
        if self.c.random() < 0.9:
            self.scope = known
        self.depth -= 1

    def statement(self):
        self.budget -= 1
        simple = self.budget <= 0 or self.depth > 3
        forms = _SIMPLE if simple or self.c.random() < 0.55 else _COMPOUND
        self.c.choice(forms)(self)

    def assign(self):
        kind = self.c.choice("TTTTIIILLDSOBFP")
        value = self.expr(kind)
        name = self.fresh(kind)
        self.put(f"{name} = {value}")
        self.scope[name] = kind

    def effect(self):
        self.put(self.fill(self.c.choice(_EFFECTS), 1))

    def augment(self):
        kind = self.c.choice("TIFLS")
        name = self.pick(kind)
        if name is None or name in ("x", "y") and self.c.random() < 0.7:
            return self.assign()
        op = {"T": "+ - *", "I": "+ - * // % & |", "F": "+ - *", "L": "+", "S": "+"}[kind].split()
        other = "I" if kind == "T" and self.c.random() < 0.3 else kind
        self.put(f"{name} {self.c.choice(op)}= {self.expr(other)}")

    def unpack(self):
        a, b = self.fresh("T"), self.fresh("I")
        if a == b:
            b += "_"
        self.put(f"{a}, {b} = {self.expr('T')}, {self.expr('I')}")
        self.scope.update({a: "T", b: "I"})
        if self.c.random() < 0.4:
            c, d = self.fresh("I"), self.fresh("L")
            self.put(f"{c}, *{d} = {self.expr('L')}")
            self.scope.update({c: "I", d: "L"})

    def swap(self):
        a, b = self.pick("T"), self.pick("T")
        self.put(f"{a}, {b} = {b}, {a}")

    def do_if(self):
        self.put(f"if {self.expr('B')}:")
        self.block()
        for word in ("elif", "else"):
            if self.c.random() < 0.4:
                self.put("else:" if word == "else" else f"elif {self.expr('B')}:")
                self.block()

    def do_for(self):
        name = self.fresh("I")
        source, kind = self.c.choice(
            [
                (f"range({self.c.randint(0, 4)})", "I"),
                ("range(n)", "I"),
                ("list(items)[:4]", "I"),
                ("enumerate(list(items)[:3])", "t"),
                ("zip(range(3), 'abc')", "t"),
                ("list(table.items())[:4]", "t"),
                ("counter(3)", "I"),
                ("x", "T"),
                ("(x, y, x + y)", "T"),
                ("reversed(range(3))", "I"),
                ("itertools.chain([1, 2], range(2))", "I"),
                ("sorted(table)", "S"),
                ("word[:3]", "S"),
                ("map(abs, [-1, 2])", "I"),
            ]
        )
        if kind == "t":
            other = name + "k"
            self.put(f"for {other}, {name} in {source}:")
            kind = "I"
        else:
            self.put(f"for {name} in {source}:")
        known = dict(self.scope)
        self.scope[name] = kind
        self.loops += 1
        self.block()
        self.loops -= 1
        self.scope = known
        if self.c.random() < 0.2:
            self.put("else:")
            self.block(1, 2)

    def do_while(self):
        self.names += 1
        name = f"w{self.names}"
        self.put(f"{name} = 0")
        extra = f" and ({self.expr('B')})" if self.c.random() < 0.5 else ""
        self.put(f"while {name} < {self.c.randint(1, 4)}{extra}:")
        self.depth += 1
        self.put(f"{name} += 1")
        self.depth -= 1
        self.scope[name] = "I"
        self.loops += 1
        self.block()
        self.loops -= 1

    def leave_loop(self):
        if not self.loops:
            return self.effect()
        self.put(f"if {self.expr('B')}: {self.c.choice(['break', 'continue'])}")

    def do_try(self):
        self.put("try:")
        self.block()
        shape = self.c.choice(["except", "except", "except", "finally", "both", "else"])
        if shape != "finally":
            kinds = self.c.choice(
                [
                    "KeyError",
                    "(IndexError, KeyError)",
                    "Exception",
                    "ValueError",
                    "Oops",
                    "ZeroDivisionError",
                    "LookupError",
                    "Exception",
                ]
            )
            self.put(f"except {kinds} as error:")
            self.depth += 1
            self.put(
                self.c.choice(["LOG.append(type(error).__name__)", "LOG.append(error.args)", "LOG.append(str(error))", "pass"])
            )
            self.depth -= 1
            self.block()
            if self.c.random() < 0.15:
                self.depth += 1
                self.put(self.c.choice(["raise", "raise Oops('again') from error", "raise ValueError('other')"]))
                self.depth -= 1
        if shape == "else":
            self.put("else:")
            self.block()
        if shape in ("finally", "both"):
            self.put("finally:")
            self.block()

    def do_with(self):
        manager = self.c.choice(
            [
                "torch.no_grad()",
                "scope('s')",
                "scope('t', True)",
                "Guarded(LOG, True)",
                "Guarded(items, False) as managed",
                "contextlib.suppress(KeyError, IndexError)",
                "torch.no_grad(), scope('u')",
                "contextlib.nullcontext(3)",
                "torch.autocast('cpu', dtype=torch.bfloat16, enabled=False)",
                "contextlib.ExitStack()",
                "torch.enable_grad()",
            ]
        )
        self.put(f"with {manager}:")
        self.block()

    def do_raise(self):
        self.put(
            f"if {self.expr('B')}: raise "
            + self.c.choice(
                [
                    "ValueError('v')",
                    "KeyError('k')",
                    "Oops('o', 5)",
                    "IndexError(1)",
                    "ZeroDivisionError",
                    "Oops('p') from KeyError(1)",
                ]
            )
        )

    def do_return(self):
        if self.depth == 0:
            return self.assign()
        self.put(f"if {self.expr('B')}: return {self.expr(self.c.choice('TIL'))}")

    def do_function(self):
        if self.in_function > 1:
            return self.assign()
        self.names += 1
        name = f"f{self.names}"
        known, loops = dict(self.scope), self.loops
        form = self.c.choice(["def", "def", "nonlocal", "gen", "lambda", "recursive", "deco"])
        if form == "lambda":
            self.scope["p"] = "T"
            self.put(f"{name} = lambda p, q=#: {self.expr('T')}".replace("#", str(self.c.randint(0, 3))))
            self.scope = known
            self.scope[name] = "G"
            return
        if form == "recursive":
            self.put(f"def {name}(p, q=2):")
            self.depth += 1
            self.put("if q <= 0: return p")
            self.put(f"return {name}({self.expr('T')} + p, q - 1)")
            self.depth -= 1
            self.scope[name] = "G"
            return
        if form == "deco":
            self.put("@functools.lru_cache(None)" if self.c.random() < 0.3 else "@functools.wraps(peek)")
            if "wraps" in self.lines[-1]:
                pass
        outer = [n for n, k in self.scope.items() if n.startswith("v") and k in "TI" and not self.in_function]
        self.put(f"def {name}(p, q={self.expr('I', 2)}):")
        self.depth += 1
        if form == "nonlocal" and outer:
            var = self.c.choice(outer)
            self.put(f"nonlocal {var}")
            self.put(f"{var} = {var} + 1")
        self.scope = {k: v for k, v in self.scope.items() if not k.startswith("v") and not k.startswith("w")}
        self.scope.update(p="T", q="I")
        self.loops, self.in_function = 0, self.in_function + 1
        self.depth -= 1
        self.block(1, 3)
        self.depth += 1
        self.put(f"{'yield' if form == 'gen' else 'return'} {self.expr('T')}")
        if form == "gen":
            self.put("LOG.append('resumed')")
            self.put("yield p")
        self.depth -= 1
        self.scope, self.loops, self.in_function = known, loops, self.in_function - 1
        self.scope[name] = "g" if form == "gen" else "G"

    def call_function(self):
        name = self.pick("G") or self.pick("g")
        if name is None:
            return self.do_function()
        call = f"{name}({self.expr('T')})" if self.c.random() < 0.6 else f"{name}({self.expr('T')}, q={self.expr('I')})"
        result = self.fresh("T")
        self.put(f"{result} = {call}" if self.scope[name] == "G" else f"{result} = sum({call}, {self.expr('T')})")
        self.scope[result] = "T"

    def do_class(self):
        self.names += 1
        name = f"C{self.names}"
        result = self.fresh("O")
        self.put(f"class {name}(Base):")
        self.depth += 1
        self.put(f"kind = {self.expr('S')}")
        self.put("def step(self, k):")
        self.depth += 1
        self.put(f"self.value = self.value * 2 + {self.expr('I', 2)}")
        self.put("return super().step(k)" if self.c.random() < 0.5 else "return self")
        self.depth -= 2
        self.put(f"{result} = {name}({self.expr('I')})")
        self.scope[result] = "O"

    def do_match(self):
        subject = self.expr(self.c.choice("LDIPO"))
        self.put(f"match {subject}:")
        cases = [
            "case []",
            "case [a, *b]",
            "case {'a': a, **b}",
            "case Point(a, b=2)",
            "case Point()",
            "case int(a) if a > 1",
            "case 0 | 1",
            "case Pair(a, b)",
            "case Base(value=a)",
            "case str()",
            "case None",
        ]
        self.depth += 1
        for _ in range(self.c.randint(1, 3)):
            self.put(self.c.choice(cases) + ":")
            self.block(1, 2)
        self.depth -= 1

    def global_write(self):
        self.put(
            self.c.choice(
                [
                    "bump()",
                    f"bump({self.expr('I')})",
                    "SHARED['b'].append(n)",
                    f"SHARED['c'] = {self.expr('T')}",
                    "Base.total += 1",
                    f"Base.extra = {self.expr('I')}",
                    "del SHARED['c']",
                ]
            )
        )

    def breaks(self):
        self.put(
            self.c.choice(
                [
                    f"note({self.expr('I')}, {self.expr('T')})",
                    f"note('here', {self.expr('L')})",
                    f"v_item = ({self.expr('T')}).sum().item()",
                    "print(n, word, items)",
                    f"print({self.expr('S')})",
                ]
            )
        )

    def delete(self):
        self.put(
            self.fill(
                self.c.choice(
                    [
                        "del items[#]",
                        "del table['a']",
                        "obj.items.pop()",
                        "del obj.extra",
                        "items.clear()",
                        "table.pop(#, None)",
                        "items[1:3] = [#, #]",
                        "items.remove(#)",
                        "items[::2] = [#]",
                    ]
                ),
                1,
            )
        )


_SIMPLE = (
    [_Program.assign] * 6
    + [_Program.effect] * 4
    + [_Program.augment] * 2
    + [
        _Program.unpack,
        _Program.swap,
        _Program.call_function,
        _Program.global_write,
        _Program.breaks,
        _Program.do_raise,
        _Program.leave_loop,
        _Program.delete,
        _Program.do_return,
    ]
)
_COMPOUND = (
    [_Program.do_if] * 3
    + [_Program.do_for] * 3
    + [
        _Program.do_while,
        _Program.do_try,
        _Program.do_try,
        _Program.do_with,
        _Program.do_function,
        _Program.do_function,
        _Program.do_class,
        _Program.do_match,
    ]
)

_LITERALS = {
    "T": "x",
    "I": "3",
    "F": "1.5",
    "L": "[1, 2]",
    "D": "{'a': 1}",
    "S": "'s'",
    "O": "Base(2)",
    "B": "flag",
    "P": "Point(x)",
    "Z": "{1, 2}",
}

_EXPRESSIONS = {
    "T": [
        "$T + $T",
        "$T * $T",
        "$T - $I",
        "$T * $F",
        "torch.relu($T)",
        "$T.sum()",
        "$T.abs()",
        "$T.reshape(-1)",
        "$T.t()",
        "$T[0]",
        "torch.cat([$T, $T])",
        "torch.stack([$T, $T]).sum(0)",
        "$T.mean(-1)",
        "torch.where($T > 0, $T, $T)",
        "-$T",
        "$T @ $T.t()",
        "torch.zeros_like($T)",
        "$T.clone().mul_(2)",
        "$T.view(-1)",
        "torch.ones($T.shape)",
        "$T.new_ones($T.shape[0])",
        "$T.clamp(-1, 1)",
        "$T.detach()",
        "torch.nn.functional.softmax($T, -1)",
        "$T.double().float()",
        "$T[..., :1]",
        "$T.squeeze()",
        "$T.unsqueeze(0)",
        "$T if $B else $T",
        "sum([$T, $T])",
        "peek($T)",
        "obj($T)",
        "functools.reduce(operator.add, [$T, $T])",
        "max([$T], key=len)",
        "torch.tensor($F)",
        "torch.tensor([$I, $I])",
        "torch.arange($I)",
        "$T.to(torch.float64)",
        "Pair($T, 1).left",
        "$P.norm()",
        "(lambda z: z * 2)($T)",
        "next(iter([$T]))",
        "[$T, $T][#]",
        "{'k': $T}['k']",
        "$T.expand(2, *$T.shape)",
        "$T ** 2",
        "torch.tanh($T) / 3.0",
        "$T.max()",
        "$T.transpose(0, -1)",
        "$T.contiguous()",
        "$T.numpy()",
        "$T.split(1)[0]",
        "net($T)",
        "net($T, again=1)",
        "$T.unbind()[0]",
        "$T.chunk(2)[-1]",
        "$T.masked_fill($T > #, 0.5)",
        "$T.add(1).mul_($T)",
        "$T.diagonal(0, -2, -1)",
        "torch.addcmul($T, $T, $T, value=#)",
        "$T.sigmoid() * $T.exp()",
        "$T.var(-1, keepdim=True)",
        "$T.flatten()[::2]",
        "$T.repeat(2, 1)",
        "$T.cumsum(0)",
        "torch.einsum('...i->...', $T)",
        "$T.max(-1).values",
        "$T.sort(-1).values",
        "$T.sum($I)",
        "$T.view_as($T)",
        "$T.new_full(($I, 2), $F)",
        "torch.linspace(0, 1, $I)",
        "$T.to($T.dtype)",
        "$T.narrow(0, 0, 1)",
        "$T.roll(1, 0)",
        "torch.nn.functional.pad($T, (1, #))",
        "$T.pow($I)",
        "$T.index_select(0, torch.tensor([0, 0]))",
        "$T.detach().clone().requires_grad_()",
    ],
    "I": [
        "#",
        "n",
        "$I + $I",
        "$I * $I",
        "$I - #",
        "$I // $I",
        "$I % $I",
        "len($L)",
        "len($D)",
        "$L[#]",
        "$T.shape[0]",
        "$T.ndim",
        "$T.numel()",
        "min($I, $I)",
        "max($L)",
        "sum($L)",
        "abs($I)",
        "$D['a']",
        "$D.get('b', #)",
        "int($F)",
        "$O.value",
        "$O.double",
        "$O.auto_x",
        "len($O)",
        "hash('a') * 0",
        "ord($S[0])",
        "$S.count('a')",
        "$L.index(#)",
        "int($S)",
        "round($F)",
        "$I ** 2",
        "next(iter($L))",
        "len($T)",
        "Base.total",
        "COUNT",
        "$T.dim() + $T.size(0)",
        "[i for i in $L if i > #][0]",
        "$O.plain($I)",
        "sum(i * 2 for i in $L)",
        "list(counter(#))[-1]",
        "varargs($I, *$L)[0]",
        "math.floor($F)",
        "divmod($I, #)[1]",
        "int($T.sum())",
        "(lambda *a, k=1: len(a) + k)(*$L)",
        "functools.reduce(operator.add, $L, #)",
        "$I if $B else $I",
        "~$I",
        "$I << 1",
        "$I & #",
    ],
    "F": [
        "1.5",
        "$F * 2",
        "$I / $I",
        "float($I)",
        "$F + $I",
        "math.sqrt(abs($I))",
        "math.pi",
        "-$F",
        "$F / $F",
        "$T.sum().item()",
    ],
    "B": [
        "flag",
        "not $B",
        "$I > #",
        "$I == $I",
        "$B and $B",
        "$B or $B",
        "# in $L",
        "'a' in $D",
        "$O == $O",
        "isinstance($O, Derived)",
        "$T is $T",
        "$L == $L",
        "bool($L)",
        "all($L)",
        "any(i > # for i in $L)",
        "$S.startswith('a')",
        "$T.shape == $T.shape",
        "$T.requires_grad",
        "hasattr($O, 'extra')",
        "$S in $D",
        "callable($O)",
        "$O is not None",
        "$T.is_floating_point()",
        "$F < $I < #",
        "($T.sum() > #).item()",
        "bool(($T > #).any())",
        "$T.dim() == #",
        "type($I) is int",
        "$S == $S",
        "{1} <= set($L)",
        "issubclass(type($O), Base)",
        "$O",
        "$D",
        "$T.sum() > #",
        "# in $O",
    ],
    "L": [
        "[$I, $I]",
        "[]",
        "$L + $L",
        "$L[#:]",
        "$L[::-1]",
        "sorted($L)",
        "list($L)",
        "[i + 1 for i in $L]",
        "list(range(#))",
        "$L * 2",
        "[*$L, $I]",
        "list(map(abs, $L))",
        "list(filter(None, $L))",
        "$L.copy()",
        "$O.items",
        "list($D.values())",
        "$D.setdefault('l', [])",
        "list(itertools.islice($L, #))",
        "list($T.shape)",
        "[i for i in $L for j in $L if i != j]",
        "sorted($L, key=lambda i: -i)",
        "list(zip($L, $L))",
        "list(dict.fromkeys($L))",
        "list(enumerate($L))",
        "sorted(set($L))",
        "list(reversed($L))",
        "list(itertools.accumulate($L))",
        "SHARED['b']",
        "$T.shape",
        "list(counter(#))",
        "[k for k in $D]",
        "list(collections.deque($L, 2))",
    ],
    "D": [
        "{'a': $I, 'b': $I}",
        "{}",
        "{**$D, 'c': $I}",
        "$D | $D",
        "dict($D)",
        "{str(i): i for i in $L}",
        "dict(a=$I)",
        "$D.copy()",
        "dict(zip('abc', $L))",
        "SHARED",
        "collections.OrderedDict(a=$I)",
        "dict(collections.Counter($S))",
        "vars($O)",
        "{k: v for k, v in $D.items() if v}",
        "collections.defaultdict(int, a=$I)",
    ],
    "S": [
        "'abc'",
        "word",
        "$S + $S",
        "$S.upper()",
        "f'{$I}-{$S}'",
        "str($I)",
        "'%s %d' % ($S, $I)",
        "$S[#]",
        "$S[::-1]",
        "'-'.join(sorted($D))",
        "$S * 2",
        "repr($L)",
        "'{} {}'.format($S, $I)",
        "f'{$F:.2f}'",
        "type($O).__name__",
        "$O.kind",
        "$S.replace('a', 'b')",
        "str($D)",
        "f'{$I:>4}'",
        "f'{$L!r:10}'",
        "str($T.dtype)",
        "$S.split('b')[0]",
        "getattr($O, 'kind')",
    ],
    "O": [
        "Base($I)",
        "Derived($I)",
        "obj",
        "$O.step($I)",
        "Base.make($I)",
        "Derived.make($T)",
        "$O + $O",
        "Derived($F) + $I",
        "$I + Derived(#)",
        "type($O)($I)",
        "setattr($O, 'extra', $I) or $O",
        "Derived($T)",
        "copy_of($O)",
    ],
    "P": ["Point($T, $I)", "Point($T)", "Pair($I, $T)", "Point(b=$I, a=$T)", "Pair(*$L)", "Pair($I, 2)._replace(left=$T)"],
    "Z": ["{$I, $I}", "set($L)", "$Z | $Z", "$Z & $Z", "$Z - $Z", "frozenset($L)"],
}

_EFFECTS = [
    "$L.append($I)",
    "$L.extend($L)",
    "$L.insert(#, $I)",
    "$L.pop()",
    "$L.sort()",
    "$L.reverse()",
    "$L[#] = $I",
    "$D['a'] = $I",
    "$D.update(b=$I)",
    "$D['t'] = $T",
    "$D.pop('a')",
    "$D.clear()",
    "$O.step($I)",
    "$O.extra = $I",
    "$O.value = $T",
    "$O.double = $I",
    "LOG.append($I)",
    "LOG.append($S)",
    "LOG.append($T)",
    "peek($L)",
    "y.add_(1)",
    "$T.mul_(2)",
    "$T[0] = 1",
    "$T[0].add_(#)",
    "$T[..., 0] *= #",
    "$T.view(-1)[#:].mul_($F)",
    "$T.t().add_($T)",
    "$T.fill_($F)",
    "$T.copy_($T)",
    "$T.zero_()",
    "$T[$T > 0] = $F",
    "$T.data.add_(1)",
    "x.detach().mul_(2)",
    "torch.add($T, 1, out=$T)",
    "$T.clamp_(min=#)",
    "$T.unsqueeze_(0)",
    "$T.requires_grad_()",
    "x.unbind(0)[#].sub_(1)",
    "net.seen.add_($I)",
    "net.gain = $I",
    "net.train($B)",
    "net.scale.requires_grad_($B)",
    "net.note = $S",
    "LOG.append(net.seen.clone())",
    "LOG.append([k for k, _ in net.named_parameters()])",
    "LOG.append(torch.is_grad_enabled())",
    "obj.items.append($T.detach())",
    "setattr($O, 'z', $S)",
    "$D.setdefault('q', []).append($I)",
    "LOG.append($Z)",
    "LOG.append($P)",
    "LOG.append($D)",
    "LOG.append($F)",
    "LOG.append(varargs($I, $S, key=$I, z=#))",
    "assert $B, $S",
    "items.append($T)",
    "obj.items.append(x)",
    "LOG.append($O == $O)",
    "$P.b = $I",
    "LOG.append(Slots($I).a)",
    "LOG.append(Slots(1).b)",
    "g = counter(2); LOG.append((next(g), g.send($I)))",
    "LOG.append($T.shape)",
    "x.zz = $I",
    "LOG.append([$I for _ in range(2)])",
    "LOG.append(list($O))",
    "LOG.append((w := $I))",
    "LOG.append(($S, $D))",
    "copy_of($L).append(1)",
]

BUMP = """

def bump(by=1):
    global COUNT
    COUNT += by
    return COUNT


def copy_of(value):
    import copy
    return copy.copy(value)

"""


def generate(choices):
    """Source text of a module with a function main(x, y, n, flag, items, table, obj, word)."""
    program = _Program(choices)
    while program.budget > 0:
        program.statement()
    kept = [n for n in program.scope if n not in ("obj",) and program.scope[n] not in "Gg"][-6:]
    lines = ["def main(x, y, n, flag, items, table, obj, word):", *program.lines, f"    return ({', '.join(kept)},)"]
    return HEADER + NETS + BUMP + "\n".join(lines) + "\n"

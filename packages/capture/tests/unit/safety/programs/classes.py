"""Classes and their objects: inheritance and super(), dataclasses, properties, descriptors, slots, attribute hooks, operators."""

from __future__ import annotations

from .writer import template

__all__ = ["COMPOUND", "SIMPLE"]

TEMPLATES = [
    """
class @C(Base):
    kind = $S
    def step(self, k):
        self.value = self.value * 2 + #
        return super().step(k)
@o = @C($I)
=> @o O
""",
    """
class @C(Both, limit=#):
    field = Typed()
    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self.field = $I
    @property
    def double(self):
        return super().double - 1
    def step(self, k):
        LOG.append(self.kind)
        return super().step(k)
@o = @C($I, extra=$I)
LOG.append((@o.double, @o.extra, @C.registry[@C.__name__], [c.__name__ for c in @C.__mro__[1:4]]))
=> @o O
""",
    """
class @C:
    seen = 0
    names = [w * 2 for w in 'ab']
    def __init__(self, p):
        self.p = p
        type(self).seen += 1
    def __call__(self, q):
        return self.p * q
    def __matmul__(self, other):
        return self.p + other
    def __iter__(self):
        yield from self.names
    def __len__(self):
        return self.seen
@o = @C($T)
@v = @o($I) + (@o @ $T)
LOG.append((len(@o), [*@o], @C.seen))
=> @v T
""",
    """
@dataclass
class @C:
    p: object
    q: int = $I
    rest: list = dataclasses.field(default_factory=list)
    def __post_init__(self):
        self.rest.append(self.q)
    def apply(self, v):
        return self.p * v + len(self.rest)
@o = @C($T)
@o.rest.extend($L)
@v = @o.apply($T)
LOG.append((@o.rest, dataclasses.replace(@o, q=#, rest=[]).rest, [f.name for f in dataclasses.fields(@o)]))
=> @v T
""",
    """
@k = Key($S, $I)
try:
    @k.rank = $I
except dataclasses.FrozenInstanceError as error:
    LOG.append(error.args)
LOG.append((@k, hash(@k) == hash(Key(@k.name, @k.rank)), @k < Key('b', 1), {@k: $I}[@k]))
""",
    """
@r = $R
@r.add($T).add($I)
@r.weight = $T
LOG.append((@r.count, @r == Record(@r.name, @r.rows, @r.weight)))
=> @r R
""",
    """
@b = Both($I, note=$S)
@b.field = $I
LOG.append((@b.field, @b.cached, @b.value))
@b.value = $I
LOG.append((@b.cached, Both.field.name, bool(@b), f'{@b:x}'))
@b += $I
@b.field = $S
=> @b O
""",
    """
@b = Both($I)
@b[$S] = $I
LOG.append((@b['a'], 'auto' in vars(@b)))
del @b['a']
LOG.append(@b[$I])
""",
    """
try:
    $O.locked = $I
except AttributeError as error:
    LOG.append(str(error))
LOG.append(getattr($O, 'auto_z', $I))
LOG.append(getattr($O, $S, None))
""",
    """
@s = Slots($T)
@s.b = $I
try:
    @s.c = 1
except AttributeError as error:
    LOG.append(error.args)
del @s.b
@v = @s.a + getattr(@s, 'b', #)
=> @v T
""",
    """
@b = Bag(a=$I)
@b['z'] += $I
@b.update($D)
LOG.append((@b, @b['fresh'], 'fresh' in @b, len(@b)))
""",
    """
@s = Stack($L).push($T).push($I)
LOG.append((len(@s), @s[-1], type(@s[1:]).__name__, @s.top()))
=> @s L
""",
    """
LOG.append((Color.RED.next(), Color(2).name, Color['RED'] is Color.RED, [c.value for c in Color], Color.RED == 1))
""",
    """
@o = Base.__new__(Base)
@o.__dict__.update(value=$T, items=[])
@v = Base.__call__(@o, $T) + @o.double
=> @v T
""",
    """
@f = $O.step
@f($I)
LOG.append(@f.__self__.items[-1:])
@g = Base.step
LOG.append(@g(Derived($I), $I).value)
""",
    """
@o = $O
@o.plus = lambda p: p + @o.value
@v = @o.plus($T)
Base.later = lambda self, p=1: self.value * p
@k = @o.later(#)
del Base.later
=> @v T
""",
    """
def @f(self, p):
    BLOCK
    return p * 2
@C = type('@C', (Base,), {'apply': @f, 'kind': $S})
@v = @C($I).apply($T)
=> @v T
""",
    """
class @C(Meta('@M', (), {})):
    def __getattr__(self, name):
        LOG.append(name)
        return $I
    def __setattr__(self, name, value):
        super().__setattr__(name + '_', value)
@o = @C()
@o.a = $T
LOG.append((@o.b, type(@C).__name__))
@v = @o.a_
=> @v T
""",
    """
class @C(abc.ABC):
    @abc.abstractmethod
    def need(self, p): ...
    def both(self, p):
        return self.need(p) + 1
class @D(@C):
    def need(self, p):
        BLOCK
        return p * 3
@v = @D().both($T)
try: @C()
except TypeError as error: LOG.append('abstract')
=> @v T
""",
]

SIMPLE = []
COMPOUND = [(1, template(text)) for text in TEMPLATES]

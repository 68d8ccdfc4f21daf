"""Programs of calls of recorded functions, whose every value is compared with what plain operators give.

A program is a list of (word, number, number). Functions have parameters that may move or be written to, a cache that is written, sizes that
change, inputs that are new, old or results, and results that are held for a while.
"""

import contextlib
import functools
import math
import random

import torch
from tracework_runtime.host.lines import Call, Free, Inputs, Return, Reuse

HOSTS = {
    "products": "def call(args):\n    w, x = args\n    args.clear()\n    return (w * x, w + x)\n",
    "cache": "def call(args):\n    w, cache, x = args\n    args.clear()\n    cache.mul_(0.5).add_(x)\n    return (w * cache, cache[1:])\n",
    "backward": "def call(args):\n    w, a, b = args\n    args.clear()\n    return (w * a + b, a - b)\n",
}
WRITTEN = {"cache": {1}}
LINES = {
    "products": (
        Inputs(("w", "x")),
        Call(("a = w * x",), ("w", "x"), ("a",), ("aten::mul",)),
        Call(("b = there_and_back(a)",), ("a",), ("b",), ("prims::device_put",), (), ("cpu", "cuda:0")),
        Free(("a",)),
        Call(("c = w + x",), ("w", "x"), ("c",), ("aten::add",)),
        Return(("b", "c"), ("b", "c")),
    ),
    "cache": (
        Inputs(("w", "cache", "x")),
        Call(("cache.mul_(0.5).add_(x)",), ("cache", "x"), (), ("aten::add_",), ("cache",)),
        Call(("wait_for(cache)",), ("cache",), (), ("aten::_local_scalar_dense",)),
        Call(("a = w * cache",), ("w", "cache"), ("a",), ("aten::mul",)),
        Return(("a", "cache[1:]"), ("a", "cache")),
    ),
    "backward": (
        Inputs(("w", "a", "b")),
        Call(("c = w * a",), ("w", "a"), ("c",), ("aten::mul",)),
        Call(("d = there_and_back(b)",), ("b",), ("d",), ("prims::device_put",), (), ("cpu", "cuda:0")),
        Reuse("e", "c", ""),
        Call(("e.add_(d)",), ("e", "d"), (), ("aten::add_",), ("e",)),
        Free(("c", "d")),
        Call(("wait_for(e)",), ("e",), (), ("aten::_local_scalar_dense",)),
        Call(("f = a - b",), ("a", "b"), ("f",), ("aten::sub",)),
        Return(("e", "f"), ("e", "f")),
    ),
}
"""The same with what cannot be recorded between, as host programs."""


def there_and_back(x):
    """A copy that the CPU has made."""
    return x.cpu().clone().to(x.device)


def wait_for(x):
    """The host reads a value."""
    assert math.isfinite(x.sum().item())


SIZES = (3, 4, 6)


def plain(name, w, *given):
    """What the functions give, cache included."""
    if name == "products":
        (x,) = given
        return w * x, w + x
    if name == "cache":
        cache, x = given
        cache.mul_(0.5).add_(x)
        return w * cache, cache[1:]
    a, b = given
    return w * a + b, a - b


@contextlib.contextmanager
def on_stream(engine, number):
    """A block in which a double of the engine has this stream."""
    engine.current_stream = number
    yield


def streams(engine):
    """Two, for a Machine."""
    return [functools.partial(on_stream, engine, number) for number in range(2)]


class Machine:
    """functions: one for each of HOSTS; streams: blocks to call in."""

    def __init__(self, functions, streams, device="cpu", seed=0):
        self.functions, self.streams, self.device = functions, streams, device
        self.generator = torch.Generator(device).manual_seed(seed)
        self.stream = 0
        self.held = []  # [tensor, what it is to be, itself a result]
        self.weights = {n: self._pair(n) for n in SIZES}
        self.caches = {n: self._pair(n) for n in SIZES}
        self.old = {n: self._pair(n) for n in SIZES}
        self.before = []

    def _pair(self, n):
        value = torch.randn(n, device=self.device, generator=self.generator)
        return [value, value.clone()]

    def run(self, program):
        """All steps, the values compared behind each."""
        for word, a, b in program:
            getattr(self, word)(a, b)
            self.check()

    def check(self):
        """Raises where a value that somebody holds is not what it is to be."""
        pairs = [*self.held, *self.weights.values(), *self.caches.values(), *self.old.values()]
        wrong = [n for n, (found, expected) in enumerate(pairs) if not torch.equal(found, expected)]
        assert not wrong, f"{wrong} of {len(pairs)} values, {len(self.held)} of them results"

    # steps

    def call(self, a, b):
        """A function with an input that is new, old, or a result."""
        name, n = list(HOSTS)[a % len(HOSTS)], SIZES[b % len(SIZES)]
        results = [pair for pair in self.held if len(pair[0]) == n]
        sources = [lambda: self._pair(n), lambda: self.old[n], lambda: results[b % len(results)] if results else self._pair(n)]
        pairs = [self.weights[n], *([self.caches[n]] if name == "cache" else []), sources[(a // 3) % 3]()]
        if name == "backward":
            pairs.append(sources[(b // 3) % 3]())
        with self.streams[self.stream]():
            found = self.functions[name]([found for found, _ in pairs])
            expected = plain(name, *[expected for _, expected in pairs])
        if name == "cache":  # a view of the cache follows it
            found, expected = found[:1], expected[:1]
        self.held += [[x, y] for x, y in zip(found, expected, strict=True)]

    def hold(self, a, b):
        """Keeps at most so many results."""
        del self.held[: max(len(self.held) - a % 5, 0)]

    def release(self, a, b):
        """Nobody holds a result."""
        self.held.clear()

    def move_weight(self, a, b):
        """As load_state_dict(assign=True) does; the memory before is kept, or anybody's."""
        n = SIZES[a % len(SIZES)]
        self.before = [*self.before, self.weights[n]] if b % 2 else []
        self.weights[n] = self._pair(n)

    def optimizer_step(self, a, b):
        """Writes to all weights."""
        for pair in self.weights.values():
            for tensor in pair:
                tensor.mul_(0.75).add_(0.1)

    def move_cache(self, a, b):
        """Another cache, or one from before."""
        n = SIZES[a % len(SIZES)]
        self.before.append(self.caches[n])
        fitting = [
            pair for pair in self.before[-6:] if len(pair[0]) == n and all(pair is not one for one in self.weights.values())
        ]
        self.caches[n] = fitting[b % len(fitting)] if b % 2 and fitting else self._pair(n)

    def write_result(self, a, b):
        """The program writes to what it was given."""
        if self.held:
            for tensor in self.held[a % len(self.held)]:
                tensor.add_(1)

    def next_stream(self, a, b):
        """The calls from now on are on another stream."""
        self.stream = a % len(self.streams)

    def begin_step(self, a, b):
        """A step of the program begins."""
        from tracework_runtime import mark_step_begin

        mark_step_begin()


WORDS = ("call",) * 12 + (
    "hold",
    "hold",
    "release",
    "optimizer_step",
    "write_result",
    "move_weight",
    "move_cache",
    "next_stream",
    "begin_step",
)


def random_program(seed, length):
    """Calls for the most part; stretches in which nothing moves, as programs have them."""
    chance, program = random.Random(seed), []
    while len(program) < length:
        calm = chance.random() < 0.7
        words = [word for word in WORDS if not (calm and word.startswith(("move", "next", "begin")))]
        a, b = chance.randrange(100), chance.randrange(100)
        for _ in range(chance.randrange(1, 60)):
            if chance.random() < 0.5:
                a, b = chance.randrange(100), chance.randrange(100)
            program.append((chance.choice(words), a, b))
    return program[:length]

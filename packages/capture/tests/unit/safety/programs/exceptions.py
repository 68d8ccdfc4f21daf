"""try, with, raise: handlers and finalisers, also those that leave a loop or a function, and context managers of the user."""

from __future__ import annotations

from .writer import template

__all__ = ["COMPOUND", "SIMPLE"]

HANDLED = [
    "KeyError",
    "(IndexError, KeyError)",
    "Exception",
    "Exception",
    "ValueError",
    "Oops",
    "ZeroDivisionError",
    "LookupError",
    "(RuntimeError, TypeError)",
    "AttributeError",
    "(ValueError, Oops)",
    "StopIteration",
    "NameError",
]
NOTED = [
    "LOG.append(error)",
    "LOG.append(error.__context__)",
    "LOG.append(type(error).__name__)",
    "LOG.append(error.args)",
    "LOG.append(str(error))",
    "pass",
]
RAISED = [
    "ValueError('v')",
    "KeyError('k')",
    "Oops('o', 5)",
    "IndexError(1)",
    "ZeroDivisionError",
    "Oops('p') from KeyError(1)",
    "Oops($I, $I) from None",
    "type('Fresh', (ValueError,), {})('f')",
    "RuntimeError($S)",
    "StopIteration(3)",
    "$X",
    "$X from $X",
    "$X.with_traceback(None)",
    "Exception($A)",
]
MANAGERS = [
    "torch.no_grad()",
    "torch.enable_grad()",
    "torch.set_grad_enabled($B)",
    "torch.inference_mode(False)",
    "scope('s')",
    "scope('t', True)",
    "Guarded(LOG, True)",
    "Guarded(items, False) as managed",
    "Guarded(LOG, $B), Guarded(LOG, False)",
    "contextlib.suppress(KeyError, IndexError)",
    "contextlib.suppress(Exception)",
    "torch.no_grad(), scope('u')",
    "contextlib.nullcontext(3)",
    "torch.autocast('cpu', dtype=torch.bfloat16, enabled=False)",
    "contextlib.ExitStack()",
    "contextlib.closing(counter(2))",
    "contextlib.redirect_stdout(sys.stdout)",
    "contextlib.nullcontext($T) as held",
    "scope($S, $B), Guarded(LOG, $B)",
    "torch.inference_mode($B)",
    "(torch.no_grad() if $B else torch.enable_grad())",
    "torch.autograd.graph.set_multithreading_enabled(True)",
]


def try_(w):
    w.put("try:")
    w.block()
    shape = w.c.choice(["except", "except", "except", "finally", "both", "else"])
    if shape != "finally":
        w.put(f"except {w.c.choice(HANDLED)} as error:")
        w.depth += 1
        w.put(w.c.choice(NOTED))
        w.depth -= 1
        w.block()
        if w.c.random() < 0.15:
            w.depth += 1
            w.put(w.c.choice(["raise", "raise Oops('again') from error", "raise ValueError('other')"]))
            w.depth -= 1
    if shape == "else":
        w.put("else:")
        w.block()
    if shape in ("finally", "both"):
        w.put("finally:")
        w.block()


def with_(w):
    w.put(f"with {w.fill(w.c.choice(MANAGERS))}:")
    w.block()


def raise_(w):
    w.put(f"if {w.expr('B')}: raise {w.fill(w.c.choice(RAISED))}")


TEMPLATES = [
    """
for @i in range(3):
    try:
        BLOCK
        if $B: continue
        LOG.append(@i)
    finally:
        LOG.append('turn')
        if @i == #: break
""",
    """
def @f(p, q=$I):
    try:
        BLOCK
        return p + q
    except LookupError as error:
        return p - len(error.args)
    finally:
        LOG.append(q)
        if q == #: return p
@v = @f($T, q=$I)
=> @v T
""",
    """
@v = $T
try:
    @v = @v * 2
    @v.mul_(#)
    LOG.append($L[#])
    @v = @v + 1
except IndexError:
    @v = @v - 1
else:
    @v = @v * 3
=> @v T
""",
    """
try:
    try:
        $D['missing']
        BLOCK
    except KeyError as error:
        @e = error
        raise Oops($S) from error
    finally:
        LOG.append('inner')
except Oops as error:
    LOG.append((type(error.__cause__).__name__, error.code, error.__context__ is error.__cause__))
""",
    """
@s = contextlib.ExitStack()
with @s:
    @s.callback(LOG.append, $I)
    @v = @s.enter_context(scope($S))
    @s.enter_context(torch.no_grad())
    BLOCK
    @s.push(Guarded(LOG, $B))
    items.append(#)
    if $B: raise KeyError(@v)
""",
    """
with Guarded(LOG, True) as @g:
    LOG.append(@g.swallow)
    $O.step($I)
    items.append($I)
    $L[#]
    BLOCK
""",
    """
@c = [$I]
try:
    items.append(#)
    $T.add_(1)
    @c.append($I // #)
    SHARED['b'].append($I)
    if $B: raise Oops('after effects')
finally:
    LOG.append(tuple(@c))
""",
    """
def @f(p):
    with scope($S), torch.no_grad():
        for @i in range(2):
            with Guarded(LOG, False):
                if $B: return p * 2
                BLOCK
    return p
@v = @f($T)
=> @v T
""",
    """
try:
    assert $B, ($I, $S)
except AssertionError as error:
    LOG.append(error.args)
""",
    """
try:
    raise ExceptionGroup('two', [ValueError(#), KeyError(#)])
except* ValueError as group:
    LOG.append(len(group.exceptions))
except* KeyError:
    LOG.append('key')
""",
    """
for @i in (1, 2):
    try:
        raise Oops(@i, $I)
    except Oops as error:
        if error.code > #: continue
        BLOCK
    else:
        LOG.append('never')
    LOG.append(sys.exc_info()[0] is None)
""",
]

SIMPLE = [(1, raise_)]
COMPOUND = [(2, try_), (2, with_), *((1, template(text)) for text in TEMPLATES)]

"""Context managers and finalisers: of the user, of contextlib, that swallow or replace exceptions, left by return, break, continue."""

from __future__ import annotations

from .writer import template

__all__ = ["COMPOUND", "SIMPLE"]

TEMPLATES = [
    """
class @C:
    def __init__(self, name):
        self.name, self.seen = name, []
    def __enter__(self):
        self.seen.append('in')
        BLOCK
        return self
    def __exit__(self, kind, value, trace):
        self.seen.append(kind and kind.__name__)
        if isinstance(value, Oops): raise KeyError(self.name) from value
        BLOCK
        return isinstance(value, ValueError)
@o = @C($S)
@v = $T
with @o as @w:
    @v = @v * 2
    BLOCK
    if $B: raise $X
    @v = @v + 1
LOG.append((@o.seen, @w is @o))
=> @v T
""",
    """
@contextlib.contextmanager
def @m(p, swallow=True):
    LOG.append('enter')
    try:
        yield p * 2
        BLOCK
    except (ValueError, LookupError) as error:
        LOG.append(error.args)
        if not swallow: raise
    else:
        LOG.append('fine')
    finally:
        LOG.append('leave')
@v = $T
with @m(@v, $B) as @w:
    @v = @w + 1
    BLOCK
    if $B: raise $X
=> @v T
""",
    """
@contextlib.contextmanager
def @m(q):
    global COUNT
    COUNT, before = COUNT + q, COUNT
    try:
        yield
    finally:
        COUNT = before
@@m($I)
def @f(p):
    BLOCK
    return p * COUNT
@v = @f($T)
with @m(#):
    @v = @v + COUNT
    BLOCK
=> @v T
""",
    """
with contextlib.ExitStack() as @s:
    for @i in range(3):
        @s.enter_context(Guarded(LOG, @i == #))
        @s.callback(LOG.append, @i)
    @v = $T * 2
    BLOCK
    if $B: raise $X
    @k = @s.pop_all() if $B else None
LOG.append('out')
""",
    """
def @f(p, q=$I):
    for @i in range(3):
        try:
            BLOCK
            if @i == q: return p
            if @i == #: continue
            p = p + 1
            if $B: raise $X
        except ValueError:
            p = p * 2
            break
        except (KeyError, IndexError) as error:
            LOG.append(error.args)
            continue
        else:
            LOG.append('else')
        finally:
            LOG.append(@i)
            BLOCK
    else:
        p = -p
    return p
@v = @f($T)
@w = @f(@v, #)
=> @v T
""",
    """
def @f(p):
    while True:
        try:
            with Guarded(LOG, True):
                BLOCK
                if $B: break
                LOG.append($L[#])
            with scope($S, $B):
                return p + 1
        finally:
            LOG.append('round')
            if $B: break
            if len(LOG) > 40: return p
    return p - 1
@v = @f($T)
=> @v T
""",
    """
try:
    try:
        raise $X
    finally:
        @v = $T
        LOG.append(sys.exc_info()[0].__name__)
        BLOCK
except Exception as error:
    LOG.append((type(error).__name__, error.args, error.__cause__, type(error.__context__).__name__))
try: error
except NameError as missing: LOG.append(type(missing).__name__)
=> @v T
""",
    """
try:
    try:
        raise $X
    except Exception as first:
        BLOCK
        try:
            raise $X from first
        except Exception as second:
            LOG.append((second.__cause__ is first, second.__suppress_context__))
            @e = second
        raise
except Exception as error:
    error.add_note($S)
    LOG.append((error.args, error.__notes__, @e.__cause__ is error))
""",
    """
class @C(Oops):
    def __init__(self, *args, extra=$I):
        super().__init__(*args[:1])
        self.extra = extra
    def __str__(self):
        return f'{type(self).__name__[0]}:{self.extra}:{self.code}'
try:
    BLOCK
    raise @C($S, extra=$I)
except (KeyError, Oops) as error:
    LOG.append((str(error), error.extra, error.args, isinstance(error, Exception)))
    if $B: raise @C('again') from None
""",
    """
def @f(p, depth=3):
    if depth == 0: raise $X
    try:
        return @f(p * 2, depth - 1)
    except LookupError:
        if depth == 2: return p
        raise
    finally:
        LOG.append(depth)
@v = $T
try: @v = @f(@v)
except Exception as error: LOG.append((type(error).__name__, error.args))
=> @v T
""",
    """
with contextlib.suppress($X.__class__, ZeroDivisionError):
    @v = $T
    items.append($I)
    BLOCK
    if $B: raise $X
    LOG.append($I // #)
LOG.append(items)
""",
    """
with contextlib.redirect_stdout(io.StringIO()) as @o:
    print($S, $I)
    BLOCK
LOG.append(@o.getvalue())
""",
    """
class @C(contextlib.ContextDecorator):
    def __enter__(self):
        LOG.append('on')
        return self
    def __exit__(self, *error):
        LOG.append(error[0] is None)
        return $B
@@C()
def @f(p):
    BLOCK
    if $B: raise $X
    return p + 2
@k = @f($T)
LOG.append(@k is None)
""",
    """
@v = $T
with torch.set_grad_enabled($B):
    @w = @v * 2
    BLOCK
    with torch.enable_grad():
        @v = @w + 1
        if $B: raise $X
LOG.append((torch.is_grad_enabled(), @v.requires_grad, @w.requires_grad))
=> @v T
""",
    """
@l = threading.Lock()
with @l:
    LOG.append(@l.locked())
    BLOCK
LOG.append(@l.locked())
""",
    """
try:
    @k = $I
    assert @k > #, f'{@k} is small'
    LOG.append(@k)
except AssertionError as error:
    LOG.append(str(error))
else:
    BLOCK
finally:
    LOG.append('checked')
""",
    """
def @f(p):
    try:
        return p + 1
    finally:
        p = p * 2
        note(p)
def @g(p):
    for @i in range(2):
        try:
            continue
        finally:
            BLOCK
            p = p + @i
    return p
@v = @f($T) + @g($T)
=> @v T
""",
    """
try:
    try:
        raise $X
    except* (ValueError, KeyError) as group:
        LOG.append([type(e).__name__ for e in group.exceptions])
        BLOCK
except Exception as error:
    LOG.append(type(error).__name__)
""",
]

SIMPLE = []
COMPOUND = [(1, template(text)) for text in TEMPLATES]

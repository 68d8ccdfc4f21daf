"""Log records of captured code: the same texts, files, lines and functions as of plain Python, and none where loggers are not enabled."""

import logging
import logging.handlers

import pytest
import torch
import tracework_capture as capture

parent = logging.getLogger("values.logging")
logger = logging.getLogger("values.logging.child")


class Unprintable:
    def __str__(self):
        raise AssertionError("asked for its text")


def deep(x, **options):
    logger.info("size %d", x.shape[0], **options)
    return x + 1


def between(x, **options):
    return deep(x, **options)


def levels(x):
    x = deep(x)
    return [between(x, stacklevel=level) for level in (1, 2, 3, 4)]


def after_a_break(x):
    x = x + 1
    capture.graph_break()
    logger.warning("after")
    return deep(x)


def in_a_generator(x):
    def drawn():
        for i in range(2):
            logger.info("drawn %d", i)
            yield i

    return sum([x * i for i in drawn()])


def in_a_comprehension(x):
    return sum([deep(x) for _ in range(2)])


def not_enabled(x):
    logger.debug("%s", Unprintable())
    logger.log(5, "%s", Unprintable())
    logger.log(35, "shown")
    return x + 1


def asked(x):
    if logger.isEnabledFor(logging.DEBUG):
        x = x * 2
    return x + logger.getEffectiveLevel()


def of_the_root(x):
    logging.error("shape %s", tuple(x.shape))
    return x * 2


def arguments(x):
    logger.info("%s %5.2f", [1, "a"], x.sum())
    logger.log(30, "%-5s|%d", {"a": 1}, x.shape[0])
    return x * 2


def representations(x):
    logger.info("%r", [1, "a"])
    return x * 2


def a_mapping(x):
    logger.info("%(a)s %(b)r", {"a": 1, "b": "c"})
    return x * 2


def with_an_exception(x):
    x = x + 1
    try:
        raise ValueError("odd")
    except ValueError:
        logger.error("failed", exc_info=True)
    return x * 2


class Records(logging.handlers.BufferingHandler):
    """A handler of the library's, which keeps records; it is asked for them after the call."""

    def __init__(self):
        super().__init__(10_000)

    @property
    def seen(self):
        found = []
        for record in self.buffer:
            error = record.exc_info and record.exc_info[0]
            found.append((record.getMessage(), record.filename, record.funcName, record.lineno, record.levelname, error))
        return found


@pytest.fixture
def records():
    handler, root = Records(), logging.getLogger()
    root.addHandler(handler)
    parent.setLevel(logging.INFO)
    yield handler
    root.removeHandler(handler)
    parent.setLevel(logging.NOTSET)
    capture.reset()


FUNCTIONS = [
    levels,
    after_a_break,
    in_a_generator,
    in_a_comprehension,
    not_enabled,
    asked,
    of_the_root,
    arguments,
    representations,
    a_mapping,
    with_an_exception,
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_as_plain_python(function, records):
    graphs = []
    compiled = capture.optimize(lambda gm, _: graphs.append(gm) or gm.forward)(function)
    x = torch.arange(3.0)

    def observed(call):
        records.buffer.clear()
        return call(x), list(records.seen)

    for _ in range(2):
        (expected, wanted), (found, seen) = (observed(call) for call in (function, compiled))
        assert [torch.equal(a, b) for a, b in zip(found, expected)] and seen == wanted
    assert len(graphs) == (2 if function in (after_a_break, with_an_exception) else 1)


def test_levels_are_guarded(records):
    graphs = []
    compiled = capture.optimize(lambda gm, _: graphs.append(gm) or gm.forward)(asked)
    x = torch.ones(2)
    try:
        for change in (lambda: None, lambda: logger.setLevel(10), lambda: logger.setLevel(0), lambda: parent.setLevel(7)):
            change()
            assert torch.equal(compiled(x), asked(x))
        logging.disable(logging.CRITICAL)
        assert torch.equal(compiled(x), asked(x))
    finally:
        logging.disable(logging.NOTSET)
        logger.setLevel(logging.NOTSET)
    assert len(graphs) == 4


class Recorder(logging.Handler):
    def __init__(self, seen):
        super().__init__()
        self.seen = seen

    def emit(self, record):
        self.seen.append(record.getMessage())


class Noting(logging.Filter):
    def __init__(self, seen):
        super().__init__()
        self.seen = seen

    def filter(self, record):
        self.seen.append(record.levelname)
        return True


@pytest.mark.parametrize("kind", ["handler", "filter"])
def test_what_a_handler_of_the_program_changes_is_seen_by_what_follows(kind):
    def f(x, logger, seen):
        logger.info("said")
        return x + len(seen)

    logger = logging.getLogger(f"test_logging.{kind}")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    compiled = capture.optimize(lambda gm, inputs: gm.forward)(f)
    compiled(torch.ones(1), logger, [])
    counts = []
    for function in (f, compiled, compiled):
        seen = []
        added = Recorder(seen) if kind == "handler" else Noting(seen)
        (logger.addHandler if kind == "handler" else logger.addFilter)(added)
        counts.append(function(torch.ones(1), logger, seen).item())
        (logger.removeHandler if kind == "handler" else logger.removeFilter)(added)
    assert counts == [2.0, 2.0, 2.0]

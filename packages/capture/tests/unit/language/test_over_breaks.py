"""What the program has in hand when the graph breaks is what plain Python has, also where its classes stand in for built-in ones."""

import collections
import io
import itertools
import typing

import pytest
import tracework_capture as capture
from tracework_capture.hook.context import FrameCallback
from tracework_capture.options import CaptureOptions

BREAK = capture.graph_break


class Reader:
    def read(self):
        return "the class's"

    def restore(self):
        try:
            del self.read
        except AttributeError:
            pass


def an_attribute_over_a_method():
    reader, text = Reader(), io.StringIO("a\nb\nc")
    reader.read = text.readline
    found = [reader.read(), reader.read()]
    reader.restore()
    found.append(reader.read())
    reader.read = text.readline
    return [*found, reader.read()]


class Pair(collections.namedtuple("Two", "a b")):
    def __iter__(self):
        items = super().__iter__()
        BREAK()
        return itertools.chain(items, ("more",))

    def __getitem__(self, key):
        return tuple(self)[key]


class Numbers(list):
    def __iter__(self):
        items = super().__iter__()
        next(items, None)
        BREAK()
        return itertools.chain(items, ("more",))

    def __reversed__(self):
        items = super().__reversed__()
        next(items, None)
        BREAK()
        return itertools.chain(items, ("more",))


class Table(dict):
    def __iter__(self):
        keys = super().__iter__()
        BREAK()
        return itertools.chain(keys, ("more",))

    def items(self):
        items = super().items()
        BREAK()
        return [*items, ("more", 1)]

    def values(self):
        values = iter(super().values())
        next(values)
        BREAK()
        return [*values, "more"]


class Ordered(collections.OrderedDict):
    def items(self):
        items = super().items()
        BREAK()
        return [*items, ("more", 1)]

    def __reversed__(self):
        keys = super().__reversed__()
        BREAK()
        return itertools.chain(keys, ("more",))


class Line(collections.deque):
    def __iter__(self):
        items = super().__iter__()
        next(items, None)
        BREAK()
        return itertools.chain(items, ("more",))


class Shifted(tuple):
    def __getitem__(self, key):
        BREAK()
        return super().__getitem__(key) + 100

    def __len__(self):
        return super().__len__() - 1


EXISTING = Pair(3, 4), Numbers((3, 4)), Table(c=3, d=4), Ordered(c=3, d=4), Line((3, 4)), Shifted((3, 4, 5))


def iterators_of_a_base_class():
    found = []
    for pair, numbers, table, ordered, line, shifted in (
        (Pair(1, 2), Numbers((1, 2, 3)), Table(a=1, b=2), Ordered(a=1, b=2), Line((1, 2, 3)), Shifted((1, 2, 3))),
        EXISTING,
    ):
        first, second, third = pair
        found += [first, second, third, list(pair), pair[2], list(numbers), list(reversed(numbers)), [*numbers]]
        found += [list(table), table.items(), table.values(), ordered.items(), list(reversed(ordered)), list(line)]
        found += [list(shifted), list(reversed(shifted)), shifted[0], len(shifted)]
    return found


class Closing(io.BytesIO):
    closed_by = ""

    def close(self):
        self.closed_by += "us"
        super().close()


def methods_that_c_binds_to_their_class():
    file = Closing(b"a")
    file.close()
    return file.closed_by, file.closed


def classes_in_c_with_an_init():
    decoder = io.IncrementalNewlineDecoder(None, True)
    return decoder.decode("a\r\nb\r"), decoder.decode("\nc", True)


def members_that_are_read_only():
    texts, buffered = [], io.BufferedReader(io.BytesIO(b"a"))
    for change in (lambda: setattr(buffered, "raw", 3), lambda: delattr(buffered, "raw")):
        try:
            change()
        except (AttributeError, TypeError) as error:
            texts.append(str(error))
    return texts, type(buffered.raw).__name__


def a_file_that_was_never_opened():
    file = io.FileIO.__new__(io.FileIO)
    try:
        return file.closefd, file.mode
    except Exception as error:
        return type(error).__name__


class Catching:
    kinds = (KeyError, ValueError)

    def catch(self):
        try:
            int("x")
        except self.kinds as error:
            return str(error)


CATCHING = Catching()
CATCHING.kinds = (IndexError, *Catching.kinds)


def kinds_of_exceptions_in_an_attribute():
    return Catching().catch(), CATCHING.catch()


@typing.runtime_checkable
class Placed(typing.Protocol):
    x: int


class Point:
    def __init__(self, x):
        if x:
            self.x = x


def new_instances_and_protocols_with_data():
    return isinstance(Point(1), Placed), isinstance(Point(0), Placed), isinstance(Point(2), typing.SupportsInt)


PROGRAMS = (
    an_attribute_over_a_method,
    iterators_of_a_base_class,
    methods_that_c_binds_to_their_class,
    classes_in_c_with_an_init,
    members_that_are_read_only,
    a_file_that_was_never_opened,
    kinds_of_exceptions_in_an_attribute,
    new_instances_and_protocols_with_data,
)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_same_as_plain(program, caplog):
    capture.reset()
    options = CaptureOptions(keep_empty=True)  # as if each frame had operations
    callback = FrameCallback(lambda gm, inputs: gm.forward, options)
    for _ in range(2):
        assert callback.wrap(program)() == program()
    assert "please report" not in caplog.text

"""Values, sources and places of tensors as data that another process reads."""

import json
import math

import pytest
import torch
from tracework_capture.guards.access import Scope
from tracework_capture.guards.paths import Changed
from tracework_capture.guards.portable import Reader, Writer
from tracework_capture.guards.store import NotPortable
from tracework_capture.sources import Attr, Const, Item, Local


def test_a_tensor_is_where_a_guard_finds_it():
    place, mine, other = Item(Local("held"), 0), torch.ones(1), torch.zeros(1)
    writer = Writer(lambda: {id(mine): place})
    data = writer.value(mine)
    with pytest.raises(NotPortable, match="a Tensor that no guard sees"):
        writer.value(other)
    for held, fits in (([other], True), ([3], False), ([], False)):
        reader = Reader(json.loads(json.dumps(writer.document())), Scope({"held": held}, {}, {}))
        if fits:
            assert reader.value(data) is other
        else:
            with pytest.raises(Changed):
                reader.value(data)


def test_values_and_sources_through_json():
    values = (
        1,
        None,
        -0.0,
        1j,
        b"\0",
        (True, [torch.float16]),
        frozenset("ab"),
        torch.device("cpu"),
        torch.Size([2]),
        torch.nn.Linear,
    )
    writer = Writer()
    source = Attr(Item(Local("x"), 1), "y")
    data, number, fixed = writer.value(values), writer.source(source), writer.source(Const(math))
    document = json.loads(json.dumps(writer.document(values=data)))
    reader = Reader(document, Scope({}, {}, {}))
    assert repr(reader.value(document["values"])) == repr(values)
    assert reader.source(number) == source and reader.source(fixed).value is math

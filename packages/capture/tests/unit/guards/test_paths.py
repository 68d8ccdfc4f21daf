"""What paths of names below modules lead to."""

import math
import sys

import pytest
import torch
from tracework_capture.guards.paths import OF_MODULE, Changed, address_of_namespace, object_below, path_to, path_to_class
from tracework_capture.guards.store import NotPortable


class Holder:
    @staticmethod
    def plain():
        return 2


def test_paths_lead_to_objects():
    assert object_below("math", "sin") is math.sin and object_below("torch", "nn.Linear.forward") is torch.nn.Linear.forward
    assert object_below(__name__, "Holder.plain") is Holder.plain
    assert object_below(__name__, "Holder.plain", bare=True) is vars(Holder)["plain"]
    assert object_below("torch.backends", OF_MODULE) is type(torch.backends)


@pytest.mark.parametrize("path", [("math", "missing"), ("math", "pi.real"), ("no_such_module", "name")], ids=".".join)
def test_paths_that_lead_nowhere(path):
    with pytest.raises(Changed):
        object_below(*path)


def test_paths_of_what_is_there():
    assert path_to(math.sin, "math", "sin") == ("math", "sin") and path_to(math.sin, "math", "cos") is None
    assert path_to(math.sin, None, "sin") is None and path_to(math.sin, "math", "f.<locals>.sin") is None
    assert path_to_class(type(lambda: 0)) == ("types", "FunctionType")
    with pytest.raises(NotPortable):
        path_to_class(type("Made", (), {}))


def test_namespaces():
    assert address_of_namespace(sys.modules) == ["modules", "sys"] and address_of_namespace(vars(math)) == ["namespace", "math"]
    assert address_of_namespace({}) is None

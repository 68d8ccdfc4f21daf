"""State that a program keeps where it is easily overlooked: attributes of functions and of modules, managers of grad mode that are used again."""

import inspect
import types

import pytest
import torch
from harness import assert_same
from tracework_capture.hook.context import optimize


def make_programs():
    """The programs on fresh state."""
    settings = types.ModuleType("settings")
    settings.scale, settings.spare = 2, 1
    exec("def scaled(x):\n    return x * scale", vars(settings))
    off, switch = torch.no_grad(), torch.set_grad_enabled(False)
    torch.set_grad_enabled(True)

    def helper(x):
        return x * helper.calls

    def an_attribute_that_was_not_there(x):
        helper.calls = getattr(helper, "calls", 0) + 1
        return helper(x), hasattr(helper, "other")

    def an_attribute_is_deleted(x):
        helper.calls, helper.spare = x.sum(), 3
        del helper.spare
        try:
            del helper.spare
        except AttributeError as error:
            return helper(x), str(error), sorted(vars(helper))

    def a_missing_attribute_is_named(x):
        try:
            return helper.missing
        except AttributeError as error:
            return x + 1, str(error), error.name, error.obj is helper

    def a_module_is_written(x):
        settings.scale += 1
        settings.made = x * settings.scale
        return settings.scaled(x), settings.made + 1

    def a_name_of_a_module_is_deleted(x):
        settings.spare = 5
        del settings.spare
        try:
            del settings.spare
        except AttributeError as error:
            return x + 1, str(error), hasattr(settings, "spare")

    def a_manager_is_entered_twice_at_once(x):
        with off:
            with off:
                y = x * 2
            z = x * 3
        return y, z, x * 4

    def a_switch_is_entered_again(x):
        with switch:
            y = x * 2
        with switch, switch:
            z = x * 3
        return y, z, x * 4, torch.set_grad_enabled(True)

    return locals()


NAMES = [name for name, value in make_programs().items() if type(value) is types.FunctionType and name != "helper"]


@pytest.mark.parametrize("name", NAMES)
def test_state_is_as_plain(name):
    plain, programs, graphs = make_programs(), make_programs(), []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    call = optimize(backend, fullgraph=True)(programs[name])
    x = torch.ones(2, requires_grad=True)
    for _ in range(4):
        results = []
        for function, its in ((plain[name], plain), (call, programs)):
            torch.set_grad_enabled(True)
            found = function(x)
            kept = {k: v for k, v in vars(its["settings"]).items() if k in ("scale", "spare", "made")}
            results.append((found[:3], torch.is_grad_enabled(), vars(its["helper"]), kept))
        torch.set_grad_enabled(True)
        assert_same(results[1], results[0])
    assert graphs


def test_a_manager_that_is_in_force_is_entered_again():
    off = torch.no_grad()

    def fn(x):
        with off:
            return x * 2

    for function in (fn, optimize(lambda gm, inputs: gm.forward)(fn)):
        with off:
            function(torch.ones(2))
        assert not torch.is_grad_enabled()  # the manager has one place for what it brings back
        torch.set_grad_enabled(True)


def test_a_signature_that_is_given_is_the_functions():
    given = inspect.Signature([inspect.Parameter("spam", inspect.Parameter.POSITIONAL_ONLY)])

    def helper():
        pass

    def fn(x):
        helper.__signature__ = given
        return x + 1, str(inspect.signature(helper))

    found, text = optimize(lambda gm, inputs: gm.forward)(fn)(torch.ones(2))
    assert torch.equal(found, torch.ones(2) + 1)
    assert text == "(spam, /)"

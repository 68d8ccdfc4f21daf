"""str.format in Python gives what it gives in C."""

import pytest
from tracework_capture.polyfills.texts import filled
from tracework_capture.values.plain.str_format import parsed

ARGS, NAMED = (3, 2.5, [1, "é"], {"k": 7}), {"w": 8, "name": "añ", "z": 1 + 2j}
TEMPLATES = [
    "",
    "plain {{}} text",
    "{} {}",
    "{0} {1!r} {0:>5}",
    "{:>{}} {}",
    "{0:{w}} {name!a:^{w}}|",
    "{2[0]} {2[1]!r} {3[k]:03d} {z.real:.1f}",
    "{0.numerator.denominator}{{{1:+.2e}}}",
    "{name[0]}{name!s:>4}",
    "{4}",
    "{missing}",
    "{3[absent]}",
    "{0.absent}",
    "{0:q}",
]
REFUSED = ["{} {0}", "{0} {}", "{0:{}}", "{", "}", "{0!x!y}"]


@pytest.mark.parametrize("template", TEMPLATES)
def test_as_in_c(template):
    def outcome(function):
        try:
            return function()
        except Exception as error:
            return type(error), error.args

    wanted = outcome(lambda: template.format(*ARGS, **NAMED))
    assert outcome(lambda: filled(parsed(template, []), ARGS, NAMED)) == wanted


@pytest.mark.parametrize("template", REFUSED)
def test_what_c_refuses(template):
    with pytest.raises(ValueError):
        template.format(*ARGS, **NAMED)
    with pytest.raises(ValueError):
        parsed(template, [])

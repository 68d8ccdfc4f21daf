"""BUILTINS: callable -> handler(frame, args, kwargs); assembled from the files of this folder."""

import types

from ..rows import checked

BUILTINS = {}


def fill():
    """Fills the table; called once by values.wrap, after the modules that need each other are loaded."""
    from .. import compared_keys, generators, made_class, random_numbers, weak_reference
    from . import arithmetic, attributes, containers, copies, heaps, iteration, logged, warned

    tables = (
        arithmetic,
        attributes,
        compared_keys,
        containers,
        copies,
        generators,
        heaps,
        iteration,
        logged,
        made_class,
        random_numbers,
        warned,
        weak_reference,
    )
    for rows in (table.ROWS for table in tables):
        for fn, handler in rows.items():
            if fn in BUILTINS:
                raise RuntimeError(f"BUILTINS has two rows for {fn!r}: see {handler.__module__}")
            known = isinstance(fn, (type, types.BuiltinFunctionType, types.FunctionType))
            BUILTINS[fn] = checked(fn, handler) if known else handler

"""BUILTINS: callable -> handler(frame, args, kwargs); assembled from the files of this folder."""

import types

from .protocol.arguments import checked

BUILTINS = {}


def fill():
    """Fills the table; called once by values.wrap, after the modules that need each other are loaded."""
    from .number import drawn as random_numbers
    from .objects import made_class, weak_reference
    from .objects import rows_attributes as attributes
    from .objects import rows_logged as logged
    from .objects import rows_warned as warned
    from .plain import compared_keys, heaps
    from .plain import rows_containers as containers
    from .plain import rows_copies as copies
    from .plain import rows_iteration as iteration
    from .protocol import operators as arithmetic
    from .torch import generators

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

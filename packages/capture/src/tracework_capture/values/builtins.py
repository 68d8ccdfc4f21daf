"""Rows of CALLS for Python's own functions; assembled from the files of this folder."""

from .protocol.calls import Policy, call


def fill():
    """Adds the rows; called once by values.wrap, after the modules that need each other are loaded."""
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
            policy = Policy.BREAK if handler.__name__ == "breaks" else Policy.MODELLED
            call(fn, policy=policy, reason=getattr(handler, "reason", None))(handler)

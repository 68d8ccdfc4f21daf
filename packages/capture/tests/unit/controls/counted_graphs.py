"""A function compiled with a backend that runs graphs as they are and keeps them."""

import tracework_capture as capture

__all__ = ["compiled"]


def compiled(function, **options):
    """(callable, list of graphs)"""
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    return capture.optimize(backend, **options)(function), graphs

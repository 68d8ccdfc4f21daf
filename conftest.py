"""What all suites share: test_*.py of any package, and integration_tests."""

import gc


def pytest_collection_finish() -> None:
    """What the modules of torch and of the tests hold is there until the end: no collection has to walk through it.

    Tests of lifetimes collect garbage thousands of times; a walk through all that torch imports takes a fifth of a second.
    """
    gc.collect()
    gc.freeze()

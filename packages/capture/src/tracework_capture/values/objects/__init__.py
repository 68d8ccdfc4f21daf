"""Functions, classes, instances, exceptions."""

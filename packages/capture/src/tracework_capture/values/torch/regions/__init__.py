"""Functions that are traced by themselves and become one node: arms, loops, transforms, autograd functions."""

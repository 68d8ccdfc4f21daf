"""`python -m tracework` is the command `tracework`."""

from .cli import app

if __name__ == "__main__":
    app()

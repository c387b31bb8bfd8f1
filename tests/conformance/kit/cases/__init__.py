"""The cases: each a function of the lab, with an ID, the section of wire.md that it checks, and what
it takes to be run."""

from dataclasses import dataclass
from typing import Callable

ALL = []


@dataclass
class Case:
    """One case."""

    name: str
    section: str
    about: str
    run: Callable
    # "box", "host" or None for both.
    role: str = None
    paths: int = 1
    manager: bool = False
    udp: bool = False


def case(name, section, **needs):
    """Makes a function a case; its docstring is what the list says of it."""
    def add(run):
        ALL.append(Case(name, section, " ".join(run.__doc__.split()), run, **needs))
        return run
    return add


def load():
    """All cases, in the order in which they run."""
    from . import opening, frames, records, reliability, credits, paths, device  # noqa: F401
    return ALL

"""bisimetric: bisimulation metrics of finite MDPs, with their errors.

Public names, and where they come from, are listed in `__init__.pyi`; each is loaded when it is first used.
"""

from importlib import import_module as _import_module

__version__ = "0.1.0"


def _places():
    """The module of each public name, from lines such as `from .metric import solve_metric as solve_metric`."""
    listed = __loader__.get_data(f"{__path__[0]}/__init__.pyi").decode()
    lines = [line.split() for line in listed.splitlines() if line.startswith("from ")]
    return {name: module for _, module, _, name, *_ in lines}


_PLACES = _places()
__all__ = [name for name in _PLACES if name != "learn"]  # `import *` loads these, and that one needs PyTorch


def __getattr__(name):
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    place = _PLACES[name]
    if place == ".":
        return _import_module(f".{name}", __name__)
    value = globals()[name] = getattr(_import_module(place, __name__), name)
    return value


def __dir__():
    return sorted({*globals(), *__all__})

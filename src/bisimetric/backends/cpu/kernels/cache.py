"""Where compiled kernels are kept: a folder of our own, and none where nothing can be written.

A kernel is compiled with the functions that it calls, which may be in other files. So the folder's name has a hash of
all sources in it: whatever changes in any of them, nothing stale is used. What cannot be read there is compiled again,
and what cannot be written is not kept.
"""

import hashlib
import os
import shutil
import tempfile
import warnings
from functools import cache
from pathlib import Path

from numba import config
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator

_BESIDE = Path(__file__).parent / "__pycache__"


@cache
def _source_hash():
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _candidates():
    """Folders to try, in order: what the user says, beside the sources, the user's own cache."""
    for given in (os.environ.get("BISIMETRIC_CACHE_DIR"), config.CACHE_DIR):
        if given:
            yield Path(given) / "bisimetric"
    yield _BESIDE
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    if os.path.isabs(base):
        yield Path(base) / "bisimetric"


def _forget_others(place, used):
    """Remove what was compiled from earlier sources of this installation."""
    for old in place.glob("kernels-*"):
        if old != used:
            shutil.rmtree(old, ignore_errors=True)


@cache
def folder():
    """The first folder that can be written, or None. That there is none is said once."""
    for place in _candidates():
        path = place / f"kernels-{_source_hash()}"
        try:
            path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path):
                if place == _BESIDE:
                    _forget_others(place, path)
                return path
        except OSError:
            continue
    warnings.warn(
        "no folder can be written in which to keep compiled kernels, so each process compiles them anew; set "
        "BISIMETRIC_CACHE_DIR to one that can.",
        RuntimeWarning,
        stacklevel=2,
    )
    return None


class _Locator(_CacheLocator):
    def __init__(self, py_func, py_file):
        self._py_file, self._line = py_file, py_func.__code__.co_firstlineno

    def get_cache_path(self):
        return str(folder())

    def get_source_stamp(self):
        return _source_hash()

    def get_disambiguator(self):
        return str(self._line)

    @classmethod
    def from_function(cls, py_func, py_file):
        return cls(py_func, py_file)


class _Implementation(CompileResultCacheImpl):
    _locator_classes = [_Locator]  # noqa: RUF012 (as its base has it)


class _Cache(FunctionCache):
    _impl_class = _Implementation

    def load_overload(self, sig, target_context):
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # damaged, or of another version
            return None

    def save_overload(self, sig, data):
        try:
            super().save_overload(sig, data)
        except OSError:  # the disk is full, or was taken away
            self.disable()
        except Exception:  # what is there is damaged
            self.flush()


def keep_compiled(dispatcher):
    """Let a compiled function be kept, where there is a folder for it."""
    if folder() is not None:
        dispatcher._cache = _Cache(dispatcher.py_func)
    return dispatcher

"""PRISM-language and JANI models, built by Storm through stormpy 2 (extra `storm`)."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..model import MDP, ModelError
from .drn import read_drn


def read_with_storm(path: Path, gamma: float, constants: str = "") -> MDP:
    """Build a PRISM-language or JANI model with all its rewards, labels and action names.

    Args:
        path: .prism, .nm, .pm, .sm or .jani. gamma: discount. constants: such as "K=2,N=3".
    """
    try:
        import stormpy
        import stormpy.io
    except ImportError:
        raise ModelError(f"{path}: needs Storm; pip install 'bisimetric[storm]'.") from None
    try:
        with _own_words_aside(), tempfile.TemporaryDirectory() as folder:
            if path.suffix == ".jani":
                program, _ = stormpy.parse_jani_model(str(path))
            else:
                program = stormpy.parse_prism_program(str(path))
            if constants:
                program, _ = stormpy.instantiate_constants(program, constants)
            model = stormpy.build_model(program, options=stormpy.BuilderOptions(build_full=True))
            exported = Path(folder) / "model.drn"
            stormpy.io.export_to_drn(model, str(exported))
            return read_drn(exported, gamma)
    except ModelError as error:
        raise ModelError(f"{path}: Storm built a model that cannot be used: {error}") from None
    except Exception as error:  # whatever Storm raises is about the user's model
        raise ModelError(f"{path}: Storm says: {' '.join(str(error).split())[:300]}") from None


@contextmanager
def _own_words_aside() -> Iterator[None]:
    """What Storm itself writes to standard output goes to standard error, where it disturbs no results."""
    try:
        sys.stdout.flush()
        kept = os.dup(1)
    except (OSError, ValueError):  # there is no standard output
        yield
        return
    try:
        try:
            os.dup2(2, 1)
        except OSError:  # nor standard error
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)

"""PRISM-language and JANI models, built by Storm through stormpy 2 (extra `storm`)."""

from __future__ import annotations

import tempfile
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
        if path.suffix == ".jani":
            program, _ = stormpy.parse_jani_model(str(path))
        else:
            program = stormpy.parse_prism_program(str(path))
        if constants:
            program, _ = stormpy.instantiate_constants(program, constants)
        model = stormpy.build_model(program, options=stormpy.BuilderOptions(build_full=True))
        with tempfile.TemporaryDirectory() as folder:
            exported = Path(folder) / "model.drn"
            stormpy.io.export_to_drn(model, str(exported))
            return read_drn(exported, gamma)
    except ModelError:
        raise
    except Exception as error:  # whatever Storm raises is about the user's model
        raise ModelError(f"{path}: Storm says: {' '.join(str(error).split())[:300]}") from None

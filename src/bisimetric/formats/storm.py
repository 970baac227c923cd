"""PRISM-language and JANI models, built by Storm through stormpy (extra `storm`)."""

from __future__ import annotations

import tempfile
from pathlib import Path

from ..model import MDP, ModelError
from .drn import read_drn


def read_with_storm(path: Path, gamma: float, constants: str = "") -> MDP:
    """Build a PRISM-language or JANI model with all its rewards and labels.

    Args:
        path: .prism, .nm, .pm, .sm or .jani. gamma: discount. constants: such as "K=2,N=3".
    """
    try:
        import stormpy
    except ImportError:
        raise ModelError(f"{path}: needs Storm; pip install 'bisimetric[storm]'.") from None
    try:
        if path.suffix == ".jani":
            program, _ = stormpy.parse_jani_model(str(path))
        else:
            program = stormpy.parse_prism_program(str(path))
        description = stormpy.SymbolicModelDescription(program)
        if constants:
            description = description.instantiate_constants(description.parse_constant_definitions(constants))
        options = stormpy.BuilderOptions(True, True)
        options.set_build_all_labels()
        options.set_build_choice_labels()
        program = description.as_jani_model() if path.suffix == ".jani" else description.as_prism_program()
        model = stormpy.build_sparse_model_with_options(program, options)
        with tempfile.TemporaryDirectory() as folder:
            exported = Path(folder) / "model.drn"
            stormpy.export_to_drn(model, str(exported))
            return read_drn(exported, gamma)
    except RuntimeError as error:
        raise ModelError(f"{path}: Storm says: {' '.join(str(error).split())[:300]}") from None

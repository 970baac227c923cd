"""Whether two models are the same, array for array."""

from __future__ import annotations

import numpy as np


def arrays_of(mdp):
    return {
        "indptr": mdp.rows.indptr,
        "indices": mdp.rows.indices,
        "probs": mdp.rows.probs,
        "rewards": mdp.rewards,
        "choice_ptr": mdp.choice_ptr,
        "action_of_choice": mdp.action_of_choice,
    }


def assert_same(a, b):
    for key, array in arrays_of(a).items():
        other = arrays_of(b)[key]
        assert array.dtype == other.dtype, key
        np.testing.assert_array_equal(array, other, err_msg=key)
    assert (a.gamma, a.action_labels, a.state_names) == (b.gamma, b.action_labels, b.state_names)
    assert (a.classes is None) == (b.classes is None)
    if a.classes is not None:
        np.testing.assert_array_equal(a.classes, b.classes)


def same_extras(a, b, *, rewards=True):
    assert {k: v.tolist() for k, v in a.state_labels.items() if v.any()} == {
        k: v.tolist() for k, v in b.state_labels.items() if v.any()
    }
    assert (a.action_names or ("",) * a.n_choices) == (b.action_names or ("",) * b.n_choices)
    if rewards:
        assert list(a.reward_models) == list(b.reward_models)
        for name, values in a.reward_models.items():
            assert values.tobytes() == b.reward_models[name].tobytes()

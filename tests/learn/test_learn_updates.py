"""Conservative updates: exact mixtures, and total variations within their bounds at every edge."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="bisimetric.learn needs PyTorch: pip install torch")

from bisimetric import learn  # noqa: E402

EPS = float(np.finfo(np.float64).eps)


def table(rng: np.random.Generator, S: int, A: int, kind: str) -> torch.Tensor:
    """Policies: anywhere, near corners, with actions never taken, of one action only."""
    if kind == "corner":
        P = rng.dirichlet(np.full(A, 1e-3), size=S)
        P[~np.isfinite(P).all(axis=1)] = np.eye(A)[0]
    elif kind == "one":
        P = np.eye(A)[rng.integers(A, size=S)]
    else:
        P = rng.dirichlet(np.ones(A), size=S)
    if kind == "zeros" and A > 1:
        P[:, rng.integers(A)] = 0.0
        P /= P.sum(axis=1, keepdims=True)
    return torch.tensor(P)


def values(rng: np.random.Generator, S: int, A: int, kind: str, scale: float) -> torch.Tensor:
    if kind == "equal":
        return torch.full((S, A), scale, dtype=torch.float64)
    if kind == "two":
        return torch.tensor(scale * rng.integers(0, 2, size=(S, A)).astype(float))
    if kind == "mixed scales":
        return torch.tensor(rng.normal(size=(S, A)) * 10.0 ** rng.uniform(-150, 150, size=(S, 1)))
    return torch.tensor(scale * rng.normal(size=(S, A)))


@given(
    seed=st.integers(0, 2**32 - 1),
    actions=st.integers(1, 6),
    policy=st.sampled_from(["anywhere", "corner", "zeros", "one"]),
    kind=st.sampled_from(["normal", "equal", "two", "mixed scales"]),
    scale=st.sampled_from([1e-300, 1e-150, 1e-9, 1.0, 1e9, 1e150, 1e300]),
    max_tv=st.one_of(st.floats(1e-12, 0.999999), st.sampled_from([1e-15, 0.5, 1.0 - 1e-12])),
    per_state=st.booleans(),
)
@example(0, 2, "anywhere", "normal", 1e150, 0.1, True)
@example(0, 1, "anywhere", "normal", 1.0, 0.1, False)
@settings(max_examples=300)
def test_mirror_steps_keep_within_their_bound(seed, actions, policy, kind, scale, max_tv, per_state):
    rng = np.random.default_rng(seed)
    pi, q = table(rng, 5, actions, policy), values(rng, 5, actions, kind, scale)
    step = learn.MirrorStep(max_tv, per_state)(pi, q)
    tv = learn.total_variation(step.policy, pi)
    assert float(tv.max()) <= max_tv + 8 * actions * EPS
    assert torch.isfinite(step.policy).all()
    assert float((step.policy.sum(-1) - 1.0).abs().max()) <= 4 * actions * EPS
    assert bool((step.policy[pi == 0.0] == 0.0).all())
    gain = (((step.policy - pi) * (q / q.abs().max().clamp_min(1e-300))).sum(-1)).numpy()
    assert (gain >= -1e-12).all()  # values never fall
    if kind == "equal" or actions == 1 or policy == "one":
        assert torch.equal(step.policy, pi)


@pytest.mark.parametrize("max_tv", [1e-6, 0.01, 0.25, 0.9, 0.999])
def test_the_bound_is_attained(max_tv):
    """Two actions with probabilities σ(∓ηs/2): no larger η has the guarantee."""
    shift = 2.0 * math.atanh(max_tv)
    low = 1.0 / (1.0 + math.exp(shift))
    pi = torch.tensor([[low, 1.0 - low]], dtype=torch.float64)
    step = learn.MirrorStep(max_tv)(pi, torch.tensor([[3.0, 1.0]], dtype=torch.float64))
    assert float(step.tv) == pytest.approx(max_tv, rel=1e-9)
    assert float(step.eta) == pytest.approx(4.0 / 2.0 * math.atanh(max_tv))
    wanted = pi * torch.exp(float(step.eta) * torch.tensor([[3.0, 1.0]], dtype=torch.float64))
    torch.testing.assert_close(step.policy, wanted / wanted.sum())


def test_one_eta_for_all_states_or_one_for_each():
    pi = torch.full((2, 2), 0.5, dtype=torch.float64)
    q = torch.tensor([[0.0, 10.0], [0.0, 1.0]], dtype=torch.float64)
    same, own = learn.MirrorStep(0.2)(pi, q), learn.MirrorStep(0.2, per_state=True)(pi, q)
    assert float(same.eta[0]) == float(same.eta[1]) == pytest.approx(0.4 * math.atanh(0.2))
    assert float(own.tv[0]) == pytest.approx(float(own.tv[1]))
    assert float(same.tv[1]) < 0.2 * float(same.tv[0])
    odd = learn.MirrorStep(0.2)(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, math.nan]]))
    assert odd.policy.tolist() == [[1.0, 0.0]]
    assert odd.policy.dtype == torch.float32


@given(seed=st.integers(0, 10_000), alpha=st.floats(1e-6, 1.0))
def test_mixtures_are_exact(seed, alpha):
    rng = np.random.default_rng(seed)
    pi, first, second = (table(rng, 4, 3, "anywhere") for _ in range(3))
    mixture = learn.SnapshotMixture(alpha, pi)
    mixture.update(first)
    torch.testing.assert_close(mixture(), (1 - alpha) * pi + alpha * first)
    before = mixture()
    mixture.update(second, alpha=0.3)
    torch.testing.assert_close(mixture(), 0.7 * before + 0.3 * second)
    wanted = 0.3 * learn.total_variation(before, second)
    torch.testing.assert_close(learn.total_variation(before, mixture()), wanted, rtol=1e-6, atol=1e-12)
    assert mixture.tv_step == 0.3
    assert mixture.tv_dropped == 0.0
    assert sum(mixture.weights) == pytest.approx(1.0)


@given(seed=st.integers(0, 10_000), keep=st.integers(2, 5), alpha=st.sampled_from([0.01, 0.3, 0.9, 1.0]))
def test_what_dropping_moves_is_bounded(seed, keep, alpha):
    rng = np.random.default_rng(seed)
    start = table(rng, 4, 3, "one")
    dropping, whole = learn.SnapshotMixture(alpha, start, keep=keep), learn.SnapshotMixture(alpha, start)
    for _ in range(12):
        policy, last = table(rng, 4, 3, "one"), dropping()
        dropping.update(policy)
        whole.update(policy)
        assert len(dropping.weights) <= keep
        moved = float(learn.total_variation(dropping(), whole()).max())
        assert moved <= dropping.tv_dropped + 1e-12
        assert float(learn.total_variation(dropping(), last).max()) <= dropping.tv_step + 1e-12


@pytest.mark.parametrize(("alpha", "keep"), [(0.01, 50), (0.1, 2), (0.3, 20)])
def test_old_policies_are_forgotten_as_fast_with_few_snapshots(alpha, keep):
    """The first policy's weight falls by 1 − α a step, however few are kept; once it is the lightest it is none."""
    mixture = learn.SnapshotMixture(alpha, torch.tensor([[1.0, 0.0]], dtype=torch.float64), keep=keep)
    for k in range(1, 600):
        mixture.update(torch.tensor([[0.0, 1.0]], dtype=torch.float64))
        first = float(mixture()[0, 0])
        assert first == pytest.approx((1.0 - alpha) ** k, rel=1e-9) or (
            first == 0.0 and (1.0 - alpha) ** k < 1.0 / keep
        )
    assert float(mixture()[0, 0]) == 0.0 or alpha * 600 < 10


def test_snapshots_do_not_change_any_more():
    net = learn.SoftmaxPolicy(torch.nn.Linear(3, 2))
    observations = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    mixture = learn.SnapshotMixture(0.5, net)
    before = mixture(observations)
    with torch.no_grad():
        for p in net.parameters():
            p.add_(torch.ones_like(p) * torch.tensor([[1.0], [-1.0]]).reshape(-1, *([1] * (p.ndim - 1))))
    torch.testing.assert_close(mixture(observations), before)
    mixture.update(net)
    torch.testing.assert_close(mixture(observations), 0.5 * before + 0.5 * net(observations).detach())
    actions = mixture.sample(observations, generator=torch.Generator().manual_seed(1))
    assert actions.shape == (5,)
    assert torch.equal(actions, mixture.sample(observations, generator=torch.Generator().manual_seed(1)))
    table_ = learn.SnapshotMixture(0.5, torch.eye(3))
    assert table_(torch.tensor([2, 0])).tolist() == torch.eye(3)[[2, 0]].tolist()


def test_distillation_measures_what_it_did():
    torch.manual_seed(0)
    observations, held_out = torch.randn(60, 3), torch.randn(40, 3)
    student = learn.SoftmaxPolicy(torch.nn.Sequential(torch.nn.Linear(3, 32), torch.nn.Tanh(), torch.nn.Linear(32, 2)))

    def greedy(x):
        return torch.nn.functional.one_hot((x[:, 0] > 0.0).long(), 2).float()

    distilled = learn.Distilled(0.3, student)
    before = distilled(held_out)
    wanted = 0.7 * before + 0.3 * greedy(held_out)
    report = distilled.update(greedy, observations, held_out, steps=300, lr=1e-2)
    after = distilled(held_out)
    assert report.tv_largest == pytest.approx(float(learn.total_variation(after, wanted).max()))
    assert report.tv_mean < 0.6 * float(learn.total_variation(before, wanted).mean())
    assert report.tv_from_old == pytest.approx(float(learn.total_variation(after, before).max()))


def test_a_mixture_can_be_distilled():
    torch.manual_seed(0)
    observations = torch.randn(80, 3)
    nets = [learn.SoftmaxPolicy(torch.nn.Linear(3, 2)) for _ in range(3)]
    mixture = learn.SnapshotMixture(0.5, nets[0])
    mixture.update(nets[1])
    distilled = learn.Distilled(1.0, nets[2])
    before = learn.total_variation(distilled(observations), mixture(observations)).max()
    report = distilled.update(mixture, observations[:60], observations[60:], steps=300, lr=0.05)
    assert report.tv_largest < 0.2 * float(before)


def test_kl_penalties():
    old = torch.tensor([[0.5, 0.5], [1.0, 0.0]], dtype=torch.float64)
    new = torch.tensor([[0.9, 0.1], [1.0, 0.0]], dtype=torch.float64, requires_grad=True)
    wanted = 0.9 * math.log(1.8) + 0.1 * math.log(0.2)
    penalty = learn.KLPenalty(2.0)
    assert float(penalty(new, old).detach()) == pytest.approx(wanted)  # 2 · the mean of that and 0
    penalty(new, old).backward()
    assert torch.isfinite(new.grad).all()
    normal = torch.distributions.Normal(torch.zeros(3), 1.0), torch.distributions.Normal(torch.ones(3), 1.0)
    assert float(penalty(*normal)) == pytest.approx(1.0)
    assert "heuristic" in penalty.guarantee


class Gaussian(torch.nn.Module):
    def forward(self, x):
        return torch.distributions.Normal(x, 1.0)


def test_continuous_actions_are_refused():
    mixture = learn.SnapshotMixture(0.5, Gaussian())
    with pytest.raises(TypeError, match="continuous actions"):
        mixture(torch.zeros(2, 1))
    with pytest.raises(TypeError, match="continuous actions"):
        learn.MirrorStep(0.1)(torch.distributions.Normal(0.0, 1.0), torch.zeros(2))


def distilled():
    return learn.Distilled(0.5, learn.SoftmaxPolicy(torch.nn.Linear(2, 2)))


def of_unlike_networks():
    mixture = learn.SnapshotMixture(0.5, learn.SoftmaxPolicy(torch.nn.Linear(2, 1)))
    mixture.update(learn.SoftmaxPolicy(torch.nn.Linear(2, 4)))
    mixture(torch.eye(2))


def test_mirror_steps_take_distributions_and_give_no_gradients():
    logits = torch.tensor([[0.3, -0.2, 0.1]], requires_grad=True)
    pi = torch.softmax(logits, -1)
    for q in (torch.tensor([[1.0, 0.0, 2.0]]), torch.zeros(1, 3)):
        wanted = learn.MirrorStep(0.2)(pi.detach(), q)
        for policy in (pi, torch.distributions.Categorical(logits=logits)):
            step = learn.MirrorStep(0.2)(policy, q)
            assert not step.policy.requires_grad
            torch.testing.assert_close(step.policy, wanted.policy)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: learn.SnapshotMixture(0.0, torch.eye(2)), "alpha"),
        (lambda: learn.SnapshotMixture(1.5, torch.eye(2)), "alpha"),
        (lambda: learn.SnapshotMixture(0.5, torch.eye(2), keep=1), "keep"),
        (lambda: learn.SnapshotMixture(0.5, torch.full((3, 4), 0.25)).update(torch.ones(3, 1)), "one kind"),
        (lambda: learn.SnapshotMixture(0.5, torch.full((3, 4), 0.25)).update(torch.full((4,), 0.25)), "a row for each"),
        (
            lambda: learn.SnapshotMixture(0.5, torch.eye(2)).update(learn.SoftmaxPolicy(torch.nn.Linear(2, 2))),
            "one kind",
        ),
        (lambda: learn.MirrorStep(0.1)(torch.zeros(0, 3), torch.zeros(0, 3)), "must have states"),
        (lambda: learn.MirrorStep(0.1)(torch.eye(2), np.eye(2)), "must be a tensor"),
        (lambda: learn.SnapshotMixture(0.5, torch.ones(2, 2)), "SoftmaxPolicy"),
        (lambda: learn.SnapshotMixture(0.5, lambda x: x), "cannot be copied"),
        (learn.SnapshotMixture(0.5, torch.nn.Linear(1, 2)), "needs some"),
        (lambda: learn.MirrorStep(0.0), "max_tv"),
        (lambda: learn.MirrorStep(1.0), "greedy"),
        (lambda: learn.MirrorStep(0.1)(torch.eye(2), torch.zeros(2)), "shape of the policy"),
        (lambda: learn.MirrorStep(0.1)(torch.eye(2), torch.full((2, 2), math.nan)), "finite"),
        (lambda: learn.MirrorStep(0.1)(-torch.eye(2), torch.zeros(2, 2)), "negative"),
        (lambda: learn.Distilled(0.1, torch.eye(2)), "nn.Module"),
        (lambda: learn.KLPenalty(-1.0), "weight"),
        (lambda: distilled().update(torch.nn.Softmax(-1), torch.eye(2), torch.eye(2), steps=-1), "steps must not be"),
        (lambda: distilled().update(torch.nn.Softmax(-1), torch.eye(2), torch.eye(2)[:0]), "at least one observation"),
        (of_unlike_networks, "answers"),
    ],
)
def test_bad_input_of_updates(make, says):
    with pytest.raises((ValueError, TypeError), match=says):
        make()

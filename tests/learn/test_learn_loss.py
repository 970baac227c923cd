"""The loss: laws (order of the batch, copies, gradients), terminals, diagnostics, and input that is refused."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="bisimetric.learn needs PyTorch: pip install torch")

from learn_training import chain_of, exact, fit  # noqa: E402

import bisimetric as bm  # noqa: E402
from bisimetric import learn  # noqa: E402
from bisimetric.learn.nexts import CategoricalNext, GaussianNext  # noqa: E402

HEADS = [learn.Norm(1.0), learn.Norm(2.0), learn.Diffuse(0.1), learn.Kernel(5.0), learn.Cosine()]
COUPLINGS = [learn.Independent(), learn.GaussianW2(), learn.Particles(4), learn.Particles(4, 0.5, debias=False)]


def batch(seed: int, B: int = 6, D: int = 3, n: int = 4):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, dtype=torch.float64, generator=generator)  # noqa: E731
    done = torch.rand(B, generator=generator) < 0.3
    return draw(B, D), draw(B, D), draw(B), draw(B, n, D), done


def following_of(coupling, samples):
    if isinstance(coupling, learn.GaussianW2):
        return GaussianNext(samples.mean(1), samples.std(1))
    return samples


@pytest.mark.parametrize("coupling", COUPLINGS, ids=str)
@pytest.mark.parametrize("head", HEADS, ids=str)
def test_the_order_of_a_batch_does_not_matter(head, coupling):
    z, target, reward, samples, done = batch(0)
    absorbing = torch.ones(3, dtype=torch.float64)
    order = torch.tensor([3, 0, 5, 1, 2, 4])
    loss = learn.MetricLoss(head, coupling, 0.9, against="target")
    losses = [
        loss(z[k], target[k], reward[k], following_of(coupling, samples[k]), done[k], absorbing=absorbing)[0]
        for k in (torch.arange(6), order)
    ]
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-6, atol=1e-9)


@given(seed=st.integers(0, 100))
@settings(max_examples=20)
def test_the_loss_is_its_formula(seed):
    z, _, reward, samples, _ = batch(seed, n=1)
    done = torch.zeros(6, dtype=torch.bool)
    loss, _ = learn.MetricLoss(learn.Norm(2.0), learn.Independent(), 0.9, 0.5)(z, None, reward, samples[:, 0], done)
    total = 0.0
    for i in range(6):
        for j in range(6):
            if i != j:
                ahead = float((samples[i, 0] - samples[j, 0]).norm())
                gap = float((z[i] - z[j]).norm()) - 0.5 * abs(float(reward[i] - reward[j])) - 0.9 * ahead
                total += gap * gap / 30.0
    assert float(loss) == pytest.approx(total)


def test_gradients_go_to_embeddings_only():
    z, target, reward, samples, done = batch(1)
    tensors = [z, target, reward, samples]
    for tensor in tensors:
        tensor.requires_grad_()
    absorbing = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    for against in ("online", "target"):
        loss = learn.MetricLoss(learn.Diffuse(0.1), learn.Independent(), 0.9, against=against)
        value, _ = loss(z, target, reward, samples, done, absorbing=absorbing)
        grads = torch.autograd.grad(value, [*tensors, absorbing], allow_unused=True)
        assert grads[0] is not None
        assert float(grads[0].abs().sum()) > 0.0
        assert grads[4] is not None
        assert grads[1] is None
        assert grads[2] is None
        assert grads[3] is None


def test_copies_of_a_state_embed_together():
    """Two copies of each of three states, with random shares of where their next states' mass goes."""
    rng = np.random.default_rng(0)
    small = rng.dirichlet(np.ones(3), size=3)
    P = np.zeros((6, 6))
    for s in range(6):
        share = rng.random(3)
        P[s, :3], P[s, 3:] = small[s % 3] * share, small[s % 3] * (1.0 - share)
    chain = chain_of(P, np.tile([0.0, 0.4, 1.0], 2))
    z = fit(learn.MetricLoss(learn.Norm(1.0), learn.Categorical(), 0.8), chain, 16, steps=1500)
    d = learn.Norm(1.0).values(z, z)
    assert float(d.max()) > 1.0
    for s in range(3):
        assert float(d[s, s + 3]) < 1e-4 * float(d.max())


def test_shuffled_pairs_are_those_of_the_generator():
    z, target, reward, samples, done = batch(2)
    loss = learn.MetricLoss(learn.Norm(1.0), learn.Independent(), 0.9, pairs=learn.Shuffled())
    values = [
        float(loss(z, target, reward, samples, done, generator=torch.Generator().manual_seed(seed))[0])
        for seed in (0, 0, 1)
    ]
    assert values[0] == values[1] != values[2]
    every = learn.MetricLoss(learn.Norm(1.0), learn.Independent(), 0.9, pairs=learn.AllPairs(diagonal=True))
    mean = np.mean([float(loss(z, target, reward, samples, done)[0]) for _ in range(600)])
    whole = float(every(z, target, reward, samples, done)[0])
    assert mean == pytest.approx(whole, rel=0.15)


def test_terminals_are_an_absorbing_state():
    """Where two states end, with rewards 1 and 0, they are 1 apart, and as far from the end as their rewards."""
    done = torch.tensor([True, True])
    z = torch.zeros(2, 2, dtype=torch.float64) + torch.tensor([[0.1, 0.0], [0.0, 0.1]])
    z.requires_grad_()
    reward = torch.tensor([1.0, 0.0], dtype=torch.float64)
    anything = torch.full((2, 2), 55.0, dtype=torch.float64)
    loss = learn.MetricLoss(learn.Norm(1.0), learn.Independent(), 0.9)
    optimiser = torch.optim.Adam([z], lr=0.05)
    for k in range(600):
        optimiser.param_groups[0]["lr"] = 0.05 * (1.0 - k / 600)
        value, _ = loss(z, None, reward, anything, done)
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
    d = learn.Norm(1.0)
    origin = torch.zeros(2, 2, dtype=torch.float64)
    torch.testing.assert_close(d.paired_values(z, origin).detach(), reward, rtol=0.0, atol=1e-3)
    assert float(d.paired_values(z[0], z[1]).detach()) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("kind", ["samples", "gaussian", "categorical"])
def test_where_terminal_transitions_lead(kind):
    """A terminal transition's next state is the absorbing one, whatever is said of it."""
    z, _, reward, samples, _ = batch(3)
    done = torch.tensor([True, False, False, True, False, False])
    end = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    losses = []
    for junk in (0.0, 1e3):
        spoilt = samples.clone()
        spoilt[done] += junk
        if kind == "samples":
            coupling, following = learn.Independent(), spoilt
        elif kind == "gaussian":
            coupling, following = learn.GaussianW2(), GaussianNext(spoilt.mean(1), spoilt.std(1) + junk * done[:, None])
        else:
            probs = torch.full((6, 6), 1.0 / 6.0, dtype=torch.float64)
            probs[done] = torch.eye(6, dtype=torch.float64)[0 if junk else 1]
            coupling, following = learn.Categorical(), CategoricalNext(probs, samples[:, 0])
        loss = learn.MetricLoss(learn.Norm(2.0), coupling, 0.9)
        losses.append(float(loss(z, None, reward, following, done, absorbing=end)[0]))
        ignored = learn.MetricLoss(learn.Norm(2.0), coupling, 0.9, terminals="ignored")
        losses.append(float(ignored(z, None, reward, following, done)[0]))
    assert losses[0] == pytest.approx(losses[2], rel=1e-9)
    assert losses[1] != pytest.approx(losses[3], rel=1e-3)


def test_corrected_rewards_take_off_variances():
    sample = torch.tensor([3.0, 0.0, 0.1], dtype=torch.float64)
    variance = torch.tensor([2.0, 3.0, 0.0], dtype=torch.float64)
    rewards = learn.VarianceCorrected()
    parts = rewards.check(learn.RewardMoments(sample, variance))
    table = rewards.between(tuple(x[:, None] for x in parts), tuple(x[None, :] for x in parts))
    assert float(table[0, 1]) == pytest.approx(2.0)  # √(9 − 5)
    assert float(table[1, 2]) == 0.0
    generator = torch.Generator().manual_seed(0)
    draws = 4.0 * torch.randn(2, 100_000, dtype=torch.float64, generator=generator) + torch.tensor([[10.0], [0.0]])
    squares = (draws[0] - draws[1]).square() - 32.0
    assert float(squares.mean()) == pytest.approx(100.0, rel=0.02)
    corrected = learn.MetricLoss(learn.Norm(1.0), learn.Independent(), 0.9, rewards=rewards)
    for worst in (math.nan, math.inf):
        for moments in ((R, torch.full_like(R, worst)), (R * worst, torch.ones_like(R))):
            with pytest.raises(ValueError, match=r"variances|reward: must be finite"):
                corrected(Z, None, learn.RewardMoments(*moments), N, DONE)
    with pytest.raises(ValueError, match="variances"):
        rewards.check(learn.RewardMoments(sample, -variance))


def test_diagnostics_say_what_happens():
    z, target, reward, samples, done = batch(4)
    done[:] = False
    loss = learn.MetricLoss(learn.Norm(1.0), learn.Independent(), 0.9, reward_span=4.0)
    value, calm = loss(z, target, reward, samples, done)
    scalars = calm.scalars()
    assert scalars["loss"] == pytest.approx(float(value))
    assert all(math.isfinite(x) for x in scalars.values())
    assert scalars["bias"] == pytest.approx((scalars["mean"] - scalars["target"]) / 40.0)
    assert not calm.advice
    _, far = loss(1000.0 * z, target, reward, samples, done)
    assert far.scalars()["explosion"] > 1.0
    assert any("bound the norms" in text for text in far.advice)
    _, near = loss(1e-6 * z, target, reward, samples, done)
    assert near.scalars()["collapse"] > 0.99
    assert near.scalars()["spread"] < 1e-4
    assert any("collapsing" in text for text in near.advice)
    _, wide = loss(5.0 * z, target, reward, 0.0 * samples, done)
    assert any("above their targets" in text for text in wide.advice)
    _, low = learn.MetricLoss(learn.Diffuse(0.1), learn.Independent(), 0.9)(z, target, reward, samples, done)
    assert any("up to 0.314" in text for text in low.advice)
    _, nothing = loss(z, target, 0.0 * reward, 0.0 * samples, done)
    assert any("all targets are 0" in text for text in nothing.advice)
    _, unknown = learn.MetricLoss(learn.Norm(1.0), learn.Independent(), 0.9)(z, target, 0.0 * reward, samples, done)
    assert all(math.isnan(unknown.scalars()[share]) for share in ("spread", "explosion", "bias"))
    assert any("give reward_span=" in text for text in unknown.advice)


@pytest.mark.parametrize(("gap", "gamma"), [(0.1, 0.9), (3.0, 0.9), (0.01, 0.3), (0.0, 0.2)])
def test_published_dbc_is_told_of_no_more_than_its_own_fixed_point(gap, gamma):
    """Two absorbing states with rewards 0 and `gap`: h(x) = h(gap) + γx; small gaps end above gap/(1 − γ)."""
    x = 100.0
    for _ in range(4000):  # from above: the largest solution
        wanted = (0.5 * gap * gap if gap < 1.0 else gap - 0.5) + gamma * x
        x = math.sqrt(2.0 * wanted) if wanted < 0.5 else wanted + 0.5
    z = torch.tensor([[0.0], [x]], dtype=torch.float64)
    reward, done = torch.tensor([0.0, gap], dtype=torch.float64), torch.zeros(2, dtype=torch.bool)
    loss = learn.dbc(gamma, as_published=True, reward_span=gap)
    draws = [torch.Generator().manual_seed(seed) for seed in range(8)]
    seen = [loss(z, None, reward, GaussianNext(z, torch.zeros_like(z)), done, generator=draw)[1] for draw in draws]
    top = max(float(one.explosion) for one in seen)
    assert top == pytest.approx(1.0)
    assert not any("bound the norms" in text for one in seen for text in one.advice)


def test_what_is_no_number_is_found_also_in_pairs_that_do_not_count():
    z, target, reward, samples, done = batch(8, n=1)
    done[:] = False
    reward[2] = math.nan
    loss = learn.MetricLoss(learn.Norm(1.0), learn.Independent(), 0.9, pairs=learn.Shuffled())
    for seed in range(40):
        with pytest.raises(ValueError, match=r"reward: must be finite; entry \[2\] is nan"):
            loss(z, target, reward, samples, done, generator=torch.Generator().manual_seed(seed))


def test_spread_is_the_mean_distance_for_every_way_to_pair():
    z, target, reward, samples, done = batch(5)
    done[:] = False
    for head in HEADS:
        wanted = head.distances(z, z).sum() / 30.0
        for against in ("online", "target"):
            loss = learn.MetricLoss(head, learn.Independent(), 0.5, against=against)
            _, seen = loss(z, target, reward, samples, done)
            assert float(seen.spread * seen.largest) == pytest.approx(float(wanted))


@pytest.mark.parametrize("head", [learn.Norm(1.0), learn.Diffuse(0.1), learn.Kernel(5.0)], ids=str)
def test_chances_of_an_end_are_a_mixture(head):
    """Beside a distribution `done` may be a chance: the same as the mixture of that distribution and the end."""
    z, target, reward, _, _ = batch(9)
    generator = torch.Generator().manual_seed(1)
    P = torch.rand(6, 6, dtype=torch.float64, generator=generator)
    P, q = P / P.sum(1, keepdim=True), torch.rand(6, dtype=torch.float64, generator=generator)
    end = torch.tensor([0.3, -0.2, 0.1], dtype=torch.float64)
    whole = torch.zeros(7, 7, dtype=torch.float64)
    whole[:6, :6], whole[:6, 6], whole[6, 6] = (1.0 - q)[:, None] * P, q, 1.0
    points = torch.cat([target, end[None]])
    z_all, r_all = torch.cat([z, end[None]]), torch.cat([reward, reward.new_zeros(1)])
    nobody, own = torch.zeros(7, dtype=torch.bool), learn.AllPairs(diagonal=True)
    for coupling in (learn.Independent(), learn.Categorical(), learn.GaussianW2()):
        loss = learn.MetricLoss(head, coupling, 0.9, pairs=own)
        got, _ = loss(z, None, reward, CategoricalNext(P, target), q, absorbing=end)
        wanted, _ = loss(z_all, None, r_all, CategoricalNext(whole, points), nobody)
        torch.testing.assert_close(got, wanted)
    gauss = learn.MetricLoss(head, learn.GaussianW2(), 0.9, pairs=own)
    moments = GaussianNext(P @ target, ((P @ target.square()) - (P @ target).square()).clamp_min(0.0).sqrt())
    torch.testing.assert_close(gauss(z, None, reward, moments, q, absorbing=end)[0], got)


def test_each_sample_may_end_by_itself():
    z, target, reward, samples, _ = batch(10)
    ends = torch.rand(6, 4, generator=torch.Generator().manual_seed(3)) < 0.4
    end = torch.zeros(3, dtype=torch.float64)
    moved = torch.where(ends[..., None], end, samples)
    for coupling in (learn.Independent(), learn.Particles(4)):
        loss = learn.MetricLoss(learn.Norm(1.0), coupling, 0.9)
        got, _ = loss(z, target, reward, samples, ends)
        wanted, _ = loss(z, target, reward, moved, torch.zeros(6, dtype=torch.bool), absorbing=end)
        torch.testing.assert_close(got, wanted)


def test_ceilings_are_checked_where_the_span_is_known():
    with pytest.warns(learn.HeadCeilingWarning, match="0.3142, and the fixed point may reach 10"):
        learn.mico(0.9, reward_span=1.0)
    with pytest.warns(learn.HeadCeilingWarning, match="up to 2"):
        learn.simsr(0.9, reward_span=1.0)
    learn.simsr(0.9, reward_span=0.2)  # 2 is enough for these
    learn.dbc(0.9, reward_span=1.0)
    with pytest.raises(ValueError, match=r"reward_weight=0\.4"):
        learn.ksme(0.9, reward_span=10.0)


Z, T, R, N, DONE = batch(6)
DONE = torch.zeros(6, dtype=torch.bool)
EVEN = torch.full((6, 6), 1.0 / 6.0, dtype=torch.float64)
SHIFT = torch.tensor([0.5, -0.5, 0.0, 0.0, 0.0, 0.0], dtype=torch.float64)
NAN = Z.clone()
NAN[2, 1] = math.nan
BAD = {
    "rewards (B, 1)": ((Z, T, R[:, None], N, DONE), ValueError, r"reward: must have shape \[6\].*squeeze"),
    "rewards of one": ((Z, T, R[:1], N, DONE), ValueError, r"reward: must have shape \[6\]"),
    "one state": ((Z[:1], T[:1], R[:1], N[:1], DONE[:1]), ValueError, "at least two states; got a batch of 1"),
    "three axes": ((N, T, R, N, DONE), ValueError, "z: embeddings"),
    "whole numbers": ((Z.long(), T, R, N, DONE), ValueError, "z: embeddings"),
    "other targets": ((Z, T[:3], R, N, DONE), ValueError, "z_target: must have the shape of z"),
    "half precision": ((Z.half(), None, R, N, DONE), ValueError, "single or double precision.*Use z.float"),
    "arrays": (
        (Z, T, R, GaussianNext(Z.detach().numpy(), Z), DONE),
        ValueError,
        r"next.mean: must be \[6, 3\]; got ndarray",
    ),
    "mixed types": ((Z, T, R.float(), N, DONE), ValueError, r"reward: is torch.float32.*Use reward.to"),
    "mixed types of next": ((Z, T, R, N.float(), DONE), ValueError, "next: is torch.float32"),
    "mixed devices": ((Z, T, R, N.to("meta"), DONE), ValueError, "next: is torch.float64 on meta"),
    "next of others": ((Z, T, R, N[:5], DONE), ValueError, "next: samples must be"),
    "next of no kind": ((Z, T, R, [1, 2], DONE), TypeError, "next: must be samples"),
    "no terminals": ((Z, T, R, N, None), ValueError, r"done: must be booleans \[6\].*got nothing.*torch.zeros"),
    "terminals as numbers": ((Z, T, R, N, DONE.double()), ValueError, "done: must be booleans"),
    "terminals of other samples": ((Z, T, R, N, DONE[:, None].expand(6, 3)), ValueError, "or of each sample"),
    "chances above 1": ((Z, T, R, GaussianNext(Z, Z.abs()), 2.0 + DONE.double()), ValueError, "between 0 and 1"),
    "chances of another type": ((Z, T, R, GaussianNext(Z, Z.abs()), DONE.float()), ValueError, "done: must be"),
    "a list of probabilities": ((Z, T, R, CategoricalNext([[1.0]], Z), DONE), ValueError, "next: needs probs"),
    "a list as a support": ((Z, T, R, CategoricalNext(EVEN, [[1.0]]), DONE), ValueError, "next: needs probs"),
    "terminals (B, 1)": ((Z, T, R, N, DONE[:, None]), ValueError, "done: must be booleans"),
    "NaN in z": ((NAN, T, R, N, DONE), ValueError, r"z: must be finite; entry \[2, 1\] is nan"),
    "NaN in rewards": ((Z, T, R * math.inf, N, DONE), ValueError, r"reward: must be finite; entry \[0\]"),
    "NaN in next": ((Z, T, R, N * math.nan, DONE), ValueError, r"next: must be finite"),
    "no moments": ((Z, T, learn.RewardMoments(R, R), N, DONE), TypeError, "VarianceCorrected"),
    "odd gaussians": ((Z, T, R, GaussianNext(Z, Z[:3]), DONE), ValueError, "next.std"),
    "odd probabilities": ((Z, T, R, CategoricalNext(Z, Z), DONE), ValueError, "next: needs probs"),
    "negative deviations": ((Z, T, R, GaussianNext(Z, -Z.abs()), DONE), ValueError, "next.std: .*not be negative"),
    "no probabilities": ((Z, T, R, CategoricalNext(2.0 * EVEN, Z), DONE), ValueError, "next.probs: .*off by up to 1"),
    "negative probabilities": ((Z, T, R, CategoricalNext(EVEN + SHIFT, Z), DONE), ValueError, "next.probs"),
    "probabilities elsewhere": ((Z, T, R, CategoricalNext(EVEN.to("meta"), Z), DONE), ValueError, "next.probs: is"),
    "rows and terminals": (
        (Z, T, R, CategoricalNext(learn.TransitionRows(torch.eye(6).double()), Z), ~DONE),
        ValueError,
        "absorbing in it",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_batches_are_refused(name):
    arguments, kind, says = BAD[name]
    loss = learn.MetricLoss(learn.Norm(1.0), learn.Independent(), 0.9)
    with pytest.raises(kind, match=re.compile(says, re.DOTALL)):
        loss(*arguments)


@pytest.mark.parametrize(
    "coupling",
    [
        learn.Particles(4),
        learn.Particles(4, 0.5, debias=False),
        learn.Categorical(),
        learn.Categorical(bm.Sinkhorn(1.0)),
    ],
    ids=str,
)
@pytest.mark.parametrize("pairs", [learn.AllPairs(), learn.Shuffled()], ids=str)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_transports_do_not_begin_with_what_is_not_finite(coupling, pairs, bad):
    samples = N.clone()
    samples[2, 1, 0] = bad
    following, place = samples, r"next: .* \[2, 1, 0\]"
    if isinstance(coupling, learn.Categorical):
        following, place = CategoricalNext(EVEN, samples[:, 1]), r"next.support: .* \[2, 0\]"
    with pytest.raises(ValueError, match=place):
        learn.MetricLoss(learn.Norm(1.0), coupling, 0.9, pairs=pairs)(Z, T, R, following, DONE)


def test_the_end_needs_a_place_where_the_head_gives_none():
    loss = learn.mico(0.9)
    with pytest.raises(ValueError, match="absorbing="):
        loss(Z, T, R, N, ~DONE)
    with pytest.raises(ValueError, match="must be one embedding"):
        loss(Z, T, R, N, ~DONE, absorbing=torch.zeros(2, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"absorbing: is torch.float32.*Use absorbing.to"):
        loss(Z, T, R, N, ~DONE, absorbing=torch.zeros(3))


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"transition_weight": 1.0}, ValueError),
        ({"transition_weight": math.nan}, ValueError),
        ({"reward_weight": 0.0}, ValueError),
        ({"reward_span": -1.0}, ValueError),
        ({"against": "both"}, ValueError),
        ({"terminals": "no"}, ValueError),
        ({"head": "norm"}, TypeError),
        ({"coupling": learn.Norm(1.0)}, TypeError),
    ],
)
def test_settings_of_losses_are_checked(changes, kind):
    given_ = {"head": learn.Norm(1.0), "coupling": learn.Independent(), "transition_weight": 0.9} | changes
    with pytest.raises(kind, match=next(iter(changes))):
        learn.MetricLoss(**given_)


def test_float32_stays_float32():
    z, target, reward, samples, done = (x.float() if x.dtype.is_floating_point else x for x in batch(7))
    for coupling in (*COUPLINGS, learn.Categorical()):
        following = following_of(coupling, samples)
        if isinstance(coupling, learn.Categorical):
            following = CategoricalNext(torch.full((6, 6), 1.0 / 6.0), samples[:, 0])
        value, _ = learn.MetricLoss(learn.Norm(1.0), coupling, 0.9)(z, target, reward, following, done)
        assert value.dtype == torch.float32


def test_exact_models_give_their_rewards():
    reward, rows, done = exact(chain_of(np.eye(2), [0.0, 1.0]))
    assert reward.dtype == rows.probs.dtype == torch.float64
    assert not done.any()


def test_the_value_of_the_end_with_itself_is_known():
    """Where the end goes is certain, so that its own pair counts, of which nothing else would say anything.

    By all other pairs these embeddings are right, though U(end, end) = −10 is not 0: a residual of −10 + 0.9 · 10.
    """
    z = torch.tensor([[math.sqrt(14.5), 0.0]] * 2, dtype=torch.float64, requires_grad=True)
    end = torch.tensor([math.sqrt(14.5), math.sqrt(0.5)], dtype=torch.float64, requires_grad=True)
    reward, done = torch.zeros(2, dtype=torch.float64), torch.ones(2, dtype=torch.bool)
    loss, said = learn.ksme(0.9)(z, None, reward, z.detach(), done, absorbing=end)
    assert float(loss.detach()) == pytest.approx(1.0 / 7.0)
    (gradient,) = torch.autograd.grad(loss, end)
    assert float(gradient[1]) > 0.1
    assert float(said.mean - said.target) == pytest.approx(-1.0 / 7.0)
    seen = set()
    for seed in range(50):  # and so it does among shuffled ones, where it is drawn
        shuffled = learn.MetricLoss(learn.Kernel(10.0), learn.Independent(), 0.9, pairs=learn.Shuffled())
        drawing = torch.Generator().manual_seed(seed)
        value, _ = shuffled(z, None, reward, z.detach(), done, absorbing=end, generator=drawing)
        seen.add(round(float(value.detach()), 9))
    assert seen == {0.0, round(1.0 / 3.0, 9), 1.0}  # of all pairs drawn, of three that count, alone


def test_pairs_of_a_state_with_its_own_sample_do_not_count():
    """In the mean over permutations the shuffled loss is that of all pairs of different states."""
    z, _, reward, samples, _ = batch(3, n=1)
    done = torch.zeros(6, dtype=torch.bool)
    settings_ = (learn.Diffuse(0.5), learn.Independent(), 0.9)
    whole, _ = learn.MetricLoss(*settings_)(z, None, reward, samples[:, 0], done)
    total, count = 0.0, 0.0
    for seed in range(3000):
        loss = learn.MetricLoss(*settings_, pairs=learn.Shuffled())
        partner = loss.pairs.partners(6, z.device, torch.Generator().manual_seed(seed))
        number = int((partner != torch.arange(6)).sum())
        value, said = loss(z, None, reward, samples[:, 0], done, generator=torch.Generator().manual_seed(seed))
        assert math.isfinite(said.scalars()["mean"])
        total, count = total + float(value) * number, count + number
    assert total / count == pytest.approx(float(whole), rel=0.05)


def test_distances_of_pairs_at_any_scale():
    for scale in (1e-30, 1e20):
        x, y = (torch.tensor([v]) * scale for v in ([1.0, 0.0], [0.0, 1.0]))
        assert float(learn.Diffuse(1.0).paired_distances(x, y)) == pytest.approx(math.pi / 2)
        assert float(learn.Cosine().paired_values(x, y)) == pytest.approx(1.0)


def test_kernels_of_too_low_a_level_are_warned_of():
    with pytest.warns(learn.HeadCeilingWarning, match=r"up to 0\.04"):
        learn.MetricLoss(learn.Kernel(0.01), learn.Independent(), 0.9, reward_span=1.0)
    learn.ksme(0.9, reward_span=4.0)


@pytest.mark.parametrize("make", [learn.ksme, learn.mico, learn.simsr, learn.dbc])
def test_discounts_are_below_one(make):
    with pytest.raises(ValueError, match="discount"):
        make(1.0)
    with pytest.raises(ValueError, match="reward_span"):
        learn.dbc(0.9, reward_span=-1.0, as_published=True)
    with pytest.raises(ValueError, match="reward_span"):
        learn.norm_bound(learn.Diffuse(0.1), 0.9, -1.0)

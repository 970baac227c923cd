"""Losses of learned metrics on a CUDA device: the same numbers and gradients as on the host, in memory O(B² + B·D)."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="bisimetric.learn needs PyTorch: pip install torch")

import bisimetric as bm  # noqa: E402
from bisimetric import learn  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch has no CUDA device"),
]

B, D, N = 24, 7, 4
LOSSES = {
    "dbc": learn.dbc(0.9),
    "dbc as published": learn.dbc(0.9, as_published=True),
    "mico": learn.mico(0.9),
    "mico as published": learn.mico(0.9, as_published=True),
    "ksme": learn.ksme(0.9),
    "simsr": learn.simsr(0.9),
    "norm 1": learn.MetricLoss(learn.Norm(1.0), learn.Independent(), 0.9),
    "norm 2": learn.MetricLoss(learn.Norm(2.0), learn.Independent(), 0.9, against="target"),
    "norm 3": learn.MetricLoss(learn.Norm(3.0), learn.Independent(), 0.9),
    "particles": learn.MetricLoss(learn.Norm(1.0), learn.Particles(N), 0.9),
    "entropic particles": learn.MetricLoss(learn.Norm(2.0), learn.Particles(N, 0.5), 0.9, pairs=learn.Shuffled()),
    "categorical": learn.MetricLoss(learn.Norm(1.0), learn.Categorical(), 0.9),
}


def given(loss, device: str, dtype: torch.dtype):
    """The same batch on each device."""
    generator = torch.Generator().manual_seed(3)
    draw = lambda *shape: torch.randn(*shape, dtype=torch.float64, generator=generator).to(device, dtype)  # noqa: E731
    z, target, reward, samples = draw(B, D), draw(B, D), draw(B), draw(B, N, D)
    done = (torch.rand(B, generator=generator) < 0.2).to(device)
    coupling = getattr(loss, "coupling", None)
    following = samples if isinstance(coupling, learn.Particles) else samples[:, 0]
    if isinstance(coupling, learn.Categorical):
        probs = torch.softmax(draw(B, 9), dim=1)
        following = learn.CategoricalNext(probs, draw(9, D))
    elif coupling is None or isinstance(coupling, learn.GaussianW2):
        following = learn.GaussianNext(samples.mean(1), samples.std(1))
    return z.requires_grad_(), target, reward, following, done


def worked_out(loss, device: str, dtype: torch.dtype):
    """(loss, gradient, scalars) on a device, brought home."""
    z, *rest = given(loss, device, dtype)
    settings = {} if isinstance(loss, learn.PublishedDBC) else {"absorbing": torch.ones(D, device=device, dtype=dtype)}
    if getattr(loss, "terminals", "ignored") == "ignored":
        settings = {}
    value, diagnostics = loss(z, *rest, generator=torch.Generator().manual_seed(1), **settings)
    (gradient,) = torch.autograd.grad(value, z)
    assert value.device == gradient.device == z.device
    return value.detach().cpu(), gradient.cpu(), diagnostics.scalars()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["double", "single"])
@pytest.mark.parametrize("name", LOSSES)
def test_losses_are_those_of_the_host(name, dtype):
    here, there = (worked_out(LOSSES[name], device, dtype) for device in ("cpu", "cuda"))
    near = {"rtol": 1e-9, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 2e-4, "atol": 1e-6}
    torch.testing.assert_close(here[0], there[0], **near)
    torch.testing.assert_close(here[1], there[1], **near)
    for key, value in here[2].items():
        assert there[2][key] == pytest.approx(value, rel=near["rtol"] * 10, abs=1e-5), key


@pytest.mark.parametrize("name", ["norm 1", "norm 2", "norm 3", "mico", "ksme", "simsr"])
def test_memory_of_a_device_grows_with_pairs_not_with_pairs_times_coordinates(name):
    loss, count, width = LOSSES[name], 1500, 60
    z = torch.randn(count, width, device="cuda", requires_grad=True)
    reward, done = torch.rand(count, device="cuda"), torch.zeros(count, dtype=torch.bool, device="cuda")
    following = torch.randn(count, width, device="cuda")
    for _ in range(2):
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        loss(z, z.detach(), reward, following, done)[0].backward()
        used = torch.cuda.max_memory_allocated() - before
    assert used < 16 * 8 * (count * count + count * width)  # one tensor of B²·D numbers would be 30 B² of such


@pytest.mark.parametrize("reg", [0.0, 0.5])
def test_transports_with_gradients_work_there(reg):
    cost = torch.rand(6, 5, dtype=torch.float64)
    values = []
    for device in ("cpu", "cuda"):
        moved = cost.clone().to(device).requires_grad_()
        value = learn.transport_of(moved, reg)
        value.backward()
        values.append((value.detach().cpu(), moved.grad.cpu()))
    torch.testing.assert_close(values[0], values[1])


def test_mixtures_mirror_steps_and_distilled_policies_work_there():
    states, q = torch.eye(6, device="cuda"), torch.randn(6, 3, device="cuda")
    step = learn.MirrorStep(0.1)(torch.full((6, 3), 1.0 / 3.0, device="cuda"), q)
    assert step.policy.is_cuda
    assert float(step.tv.max()) <= 0.1 + 1e-6
    mixture = learn.SnapshotMixture(0.25, learn.SoftmaxPolicy(torch.nn.Linear(6, 3).cuda()), keep=4)
    for _ in range(3):
        mixture.update(learn.SoftmaxPolicy(torch.nn.Linear(6, 3).cuda()))
    probs = mixture(states)
    assert probs.is_cuda
    torch.testing.assert_close(probs.sum(1), torch.ones(6, device="cuda"))


def test_an_encoder_trained_there_is_scored_against_the_certified_metric():
    chain_mdp = bm.problems.garnet(n_states=20, n_actions=2, branching=3, seed=1)
    policy = chain_mdp.uniform_policy()
    chain = chain_mdp.under(policy)
    torch.manual_seed(0)
    z = (0.1 * torch.randn(20, 24, dtype=torch.float64, device="cuda")).requires_grad_()
    loss = learn.MetricLoss(learn.Norm(1.0), learn.Categorical(), chain.gamma, rewards=learn.MeanRewards())
    rows = learn.TransitionRows.of(chain, device="cuda")
    reward = torch.tensor(chain.rewards.copy(), device="cuda")
    done = torch.zeros(20, dtype=torch.bool, device="cuda")
    optimiser = torch.optim.Adam([z], lr=0.03)
    for step in range(300):
        optimiser.param_groups[0]["lr"] = 0.03 * (1.0 - step / 300)
        value, _ = loss(z, None, reward, learn.CategoricalNext(rows, z.detach()), done)
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
    score = learn.oracle.score(z, chain_mdp, policy, head=loss.head)
    assert score.share < 0.03

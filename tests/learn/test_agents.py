"""The small agents: their parts do what they say, learn what is known, and give the same for the same seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="bisimetric.learn needs PyTorch: pip install torch")
gymnasium = pytest.importorskip("gymnasium", reason="agents act in Gymnasium's environments: pip install gymnasium")

from bisimetric import learn  # noqa: E402
from bisimetric.learn.agents import (  # noqa: E402
    ActorCritic,
    AgentSettings,
    Experience,
    MetricTask,
    QLearner,
    Replay,
    SelfPrediction,
    rollouts,
    sizes,
    train_actor_critic,
    train_q_learner,
)

SMALL = AgentSettings(gamma=0.9, dimensions=8, hidden=32, batch=32, rate=3e-3, tau=0.1, seed=1)


class Corridor(gymnasium.Env):
    """Three cells; action 1 goes right, 0 left. Leaving on the right is worth 1 and ends; on the left one stays."""

    observation_space = gymnasium.spaces.Discrete(3)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, limit: int = 1000):
        self.limit = limit

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cell, self.time = int(self.np_random.integers(3)), 0
        return self.cell, {}

    def step(self, action):
        self.time += 1
        if action == 1 and self.cell == 2:
            return 2, 1.0, True, False, {}
        self.cell = max(self.cell - 1, 0) if action == 0 else self.cell + 1
        return self.cell, 0.0, False, self.time >= self.limit, {}


def corridor_batch(count=600, seed=0):
    """Transitions of the uniform policy in the corridor."""
    rng = np.random.default_rng(seed)
    s, a = rng.integers(3, size=count), rng.integers(2, size=count)
    t = np.where(a == 1, np.minimum(s + 1, 2), np.maximum(s - 1, 0))
    done = (s == 2) & (a == 1)
    eye = torch.eye(3)
    return Experience(
        eye[s], torch.as_tensor(a), torch.as_tensor(done, dtype=torch.float32), eye[t], torch.as_tensor(done)
    )


def minibatch(data, agent):
    drawn = torch.randint(len(data.reward), (agent.settings.batch,), generator=agent.generator)
    return Experience(*(part[drawn] for part in data))


@pytest.mark.parametrize("metric", [None, learn.mico(0.9), learn.dbc(0.9), learn.dbc(0.9, as_published=True)])
def test_q_learning_finds_the_known_values(metric):
    """Q* of the corridor is γ to the power of the steps to the end, whatever loss is beside."""
    agent = QLearner(3, 2, SMALL, metric=metric)
    data = corridor_batch()
    for _ in range(600):
        said = agent.update(minibatch(data, agent))
    with torch.no_grad():
        q = agent.head(agent.encoder(torch.eye(3))).numpy()
    best = np.array([[0.9**3, 0.9**2], [0.9**3, 0.9], [0.9**2, 1.0]])
    assert np.abs(q - best).max() < 0.08
    assert ("metric/loss" in said) == (metric is not None)
    assert np.array_equal(agent.probabilities(torch.eye(3)).numpy(), [[0, 1], [0, 1], [0, 1]])


def test_the_acting_policy_is_the_mixture():
    """After a period: (1 − α) of the uniform policy and α of the greedy one, exactly; the snapshot does not move."""
    agent = QLearner(3, 2, SMALL, alpha=0.25, period=3)
    data = corridor_batch()
    for _ in range(3):
        said = agent.update(minibatch(data, agent))
    greedy = agent.greedy()(torch.eye(3))
    expected = 0.75 * 0.5 + 0.25 * greedy
    assert torch.allclose(agent.probabilities(torch.eye(3)), expected)
    assert said["tv"] == 0.25
    agent.update(minibatch(data, agent))
    assert torch.allclose(agent.probabilities(torch.eye(3)), expected)


def test_the_same_seed_gives_the_same_weights():
    def weights(metric):
        agent = QLearner(3, 2, SMALL, metric=metric)
        data = corridor_batch()
        for _ in range(5):
            agent.update(minibatch(data, agent))
        return [p.detach().clone() for p in agent.encoder.parameters()]

    first, again, without = weights(learn.dbc(0.9)), weights(learn.dbc(0.9)), weights(None)
    assert all(torch.equal(x, y) for x, y in zip(first, again, strict=True))
    assert not all(torch.equal(x, y) for x, y in zip(first, without, strict=True))


def test_the_actor_steps_as_far_as_it_may_and_improves():
    """The asked step keeps its bound in every state; the actor comes to prefer the way to the end."""
    agent = ActorCritic(3, 2, SMALL, improvement=learn.MirrorStep(0.2), metric=learn.mico(0.9))
    data = corridor_batch()
    start = agent.probabilities(torch.eye(3))[:, 1].mean()
    for _ in range(4):
        said = agent.improve(data)
        assert said["tv_asked"] <= 0.2 + 1e-6
        assert said["tv_mean"] <= said["tv"] <= 1.0
    assert agent.probabilities(torch.eye(3))[:, 1].mean() > start + 0.2


def test_training_in_gymnasium():
    agent = QLearner(3, 2, SMALL, metric=learn.mico(0.9))
    returns = train_q_learner(agent, Corridor(), 400, start=50)
    assert returns
    assert set(returns) == {1.0}
    actor = ActorCritic(
        3, 2, SMALL, improvement=learn.MirrorStep(0.3), metric=learn.simsr(0.9), critic_updates=5, actor_updates=5
    )
    reports = []
    assert train_actor_critic(actor, Corridor(), 2, steps_each=60, report=lambda k, said: reports.append((k, said)))
    assert [k for k, _ in reports] == [0, 1]
    assert "metric/spread" in reports[0][1]


def test_time_limits_are_no_ends():
    steps = rollouts.steps(Corridor(limit=2), lambda _: torch.tensor([0]), seed=0)
    seen = [next(steps) for _ in range(6)]
    assert not any(done for *_, done, _ in seen)
    assert [total for *_, total in seen] == [None, 0.0] * 3


def test_replay_forgets_the_oldest():
    replay = Replay(3, 2)
    with pytest.raises(ValueError, match="empty"):
        replay.sample(2, torch.Generator())
    for k in range(5):
        replay.add([k, k], k % 2, k, [k + 1, k + 1], k == 4)
    kept = replay.all()
    assert sorted(kept.reward.tolist()) == [2.0, 3.0, 4.0]
    assert kept.done.sum() == 1
    assert torch.equal(kept.next_observation, kept.observation + 1.0)
    assert len(replay.sample(8, torch.Generator()).reward) == 8


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="discrete actions"):
        sizes(gymnasium.make("Pendulum-v1"))
    assert sizes(Corridor()) == (3, 2)
    with pytest.raises(ValueError, match="Categorical"):
        MetricTask(learn.MetricLoss(learn.Norm(1), learn.Categorical(), 0.9), 8, torch.Generator())
    with pytest.raises(ValueError, match="n_actions"):
        QLearner(3, 1, SMALL)
    for name, value in {"gamma": 1.5, "tau": -0.1, "batch": 1, "rate": 0.0, "dimensions": 2.5}.items():
        with pytest.raises(ValueError, match=name):
            AgentSettings(**{name: value})
    for name in ("rate", "metric_weight"):
        with pytest.raises(ValueError, match="both finite"):
            AgentSettings(**{name: float("inf")})
    with pytest.raises(ValueError, match="period must be at least 1"):
        QLearner(3, 2, SMALL, alpha=0.5, period=0)


@pytest.mark.parametrize("coupling", [learn.Independent(), learn.GaussianW2(), learn.Particles(2)])
def test_tasks_tell_each_coupling_what_it_wants(coupling):
    generator = torch.Generator().manual_seed(0)
    task = MetricTask(learn.MetricLoss(learn.Norm(2), coupling, 0.9), 8, generator)
    z = torch.randn(6, 8, generator=generator, requires_grad=True)
    batch = Experience(z, torch.zeros(6).long(), torch.rand(6, generator=generator), z, torch.arange(6) == 5)
    loss, said = task(z, z.detach(), batch, z.detach().roll(1, 0))
    loss.backward()
    assert z.grad is not None
    assert np.isfinite(said["loss"])
    assert (task.model is None) == isinstance(coupling, learn.Independent)
    assert task.absorbing is None  # norms have a place for it; angles learn one
    assert MetricTask(learn.mico(0.9), 8, generator).absorbing is not None


@pytest.mark.parametrize("coupling", [learn.GaussianW2(), learn.Particles(4)])
def test_copies_are_together_where_episodes_end_by_chance(coupling):
    """Two copies, each of which stays or ends with probability 1/2: the task learns that chance, not single ends."""
    generator = torch.Generator().manual_seed(0)
    task = MetricTask(learn.MetricLoss(learn.Norm(2), coupling, 0.9), 3, generator, hidden=16)
    assert not task.model.ends(torch.zeros(2, 3)).any()  # none was seen
    z = (0.5 * torch.randn(2, 3, generator=generator)).requires_grad_()
    optimiser = torch.optim.Adam([z, *task.parameters()], lr=0.02)
    means = []
    for step in range(800):
        optimiser.param_groups[0]["lr"] = 0.02 * (1.0 - step / 800)
        s = torch.arange(16) % 2
        done = torch.rand(16, generator=generator) < 0.5
        batch = Experience(s[:, None], torch.zeros(16).long(), torch.ones(16), s[:, None], done)
        loss, _ = task(z[s], z.detach()[s], batch, z.detach()[s])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step >= 600:
            means.append([float((z[0] - z[1]).detach().norm()), float(z[0].detach().norm())])
    apart, to_the_end = np.mean(means, axis=0)
    assert task.model.ends(z.detach()).tolist() == pytest.approx([0.5, 0.5], abs=0.15)
    assert apart < 0.2 * to_the_end


def test_self_prediction_is_perfect_where_the_next_is_told():
    generator = torch.Generator().manual_seed(0)
    task = SelfPrediction(8, 2, generator)
    z = torch.randn(6, 8, generator=generator)
    batch = Experience(z, torch.zeros(6).long(), torch.zeros(6), z, torch.zeros(6, dtype=torch.bool))
    said = task.layers(torch.cat([z, torch.nn.functional.one_hot(batch.action, 2)], dim=1)).detach()
    assert task(z, z, batch, 3.0 * said)[0].item() == pytest.approx(0.0, abs=1e-6)
    assert task(z, z, batch, -said)[0].item() == pytest.approx(2.0, abs=1e-6)


def test_the_patch_of_the_documentation_has_ten_lines():
    """docs/learn-agents.md promises ten lines; the page's code is run with the rest of the documentation."""
    page = (Path(__file__).parents[2] / "docs" / "learn-agents.md").read_text()
    script = next(block for block in page.split("```") if block.startswith("python") and "replay" in block)
    assert sum("# +" in line for line in script.splitlines()) == 10

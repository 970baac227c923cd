"""Metric losses inside other people's agents, with the real packages where they are installed."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="bisimetric.learn needs PyTorch: pip install torch")

from bisimetric import learn  # noqa: E402

# Their own imports and loops warn of things that are not ours (deprecated NumPy names, environments).
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture
def sb3():
    pytest.importorskip(
        "stable_baselines3", reason="the adapter is for Stable-Baselines3: pip install stable-baselines3"
    )
    from bisimetric.learn.adapters import sb3

    return sb3


@pytest.fixture
def torchrl():
    pytest.importorskip("torchrl", reason="the adapter is for TorchRL: pip install torchrl")
    from bisimetric.learn.adapters import torchrl

    return torchrl


@pytest.mark.parametrize("metric", [learn.mico(0.99), learn.dbc(0.99)], ids=["mico", "dbc"])
def test_sb3_features_learn_the_metric(sb3, metric, tmp_path):
    def learned(weight):
        model = sb3.MetricDQN(
            "MlpPolicy",
            "CartPole-v1",
            metric=metric,
            metric_weight=weight,
            policy_kwargs=sb3.encoder_kwargs(dimensions=8, hidden=16),
            learning_starts=40,
            seed=0,
        )
        model.learn(120)
        return model

    model, again, without = learned(0.5), learned(0.5), learned(0.0)
    weights = [m.policy.q_net.features_extractor.encoder.layers[0][0].weight for m in (model, again, without)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert "metric/spread" in model.logger.name_to_value
    model.save(tmp_path / "model.zip")
    loaded = sb3.MetricDQN.load(tmp_path / "model.zip")
    assert torch.equal(loaded.policy.q_net.features_extractor.encoder.layers[0][0].weight, weights[0])
    assert loaded.metric == metric
    for name, value in model.metric_task.state_dict().items():
        assert torch.equal(loaded.metric_task.state_dict()[name], value), name
    assert loaded.metric_optimizer.state_dict()["state"].keys() == model.metric_optimizer.state_dict()["state"].keys()
    loaded.set_env(model.get_env())
    loaded.learn(60, reset_num_timesteps=False)


def test_sb3_weights_say_how_large_steps_are(sb3):
    """Adam's steps do not depend on the scale of a loss, so the weight is one of the learning rate."""

    def moved(weight):
        model = sb3.MetricDQN(
            "MlpPolicy",
            "CartPole-v1",
            metric=learn.mico(0.99),
            metric_weight=weight,
            policy_kwargs=sb3.encoder_kwargs(dimensions=8, hidden=16),
            learning_starts=60,
            seed=0,
        )
        model.learn(80)
        layer = model.policy.q_net.features_extractor.encoder.layers[0][0].weight
        before = layer.detach().clone()
        model._logger = model.logger
        for group, factor in zip(model.metric_optimizer.param_groups, (weight, 1.0), strict=False):
            assert group["lr"] == pytest.approx(factor * 1e-4)
        model._metric_step(32)
        return float((layer - before).abs().max())

    small, large = moved(0.01), moved(1.0)
    assert 20.0 < large / small < 500.0


def test_sb3_refuses_another_discount_for_several_steps(sb3):
    settings = {"policy_kwargs": sb3.encoder_kwargs(), "n_steps": 3, "gamma": 0.9}
    with pytest.raises(ValueError, match=r"gamma\*\*3"):
        sb3.MetricDQN("MlpPolicy", "CartPole-v1", metric=learn.mico(0.9), **settings)
    sb3.MetricDQN("MlpPolicy", "CartPole-v1", metric=learn.mico(0.9**3), **settings)
    with pytest.raises(ValueError, match="metric_weight"):
        sb3.MetricDQN("MlpPolicy", "CartPole-v1", metric=learn.mico(0.9), metric_weight=-1.0)


def test_sb3_refuses_features_that_cannot_learn(sb3):
    with pytest.raises(ValueError, match="encoder_kwargs"):
        sb3.MetricDQN("MlpPolicy", "CartPole-v1", metric=learn.mico(0.99))


def batch_of(tensordict, seed=0):
    generator = torch.Generator().manual_seed(seed)
    observation, following = (torch.randn(4, 4, 3, generator=generator) for _ in range(2))
    reward = torch.randn(4, 4, 1, generator=generator)
    after = {"observation": following, "reward": reward, "terminated": torch.zeros(4, 4, 1, dtype=torch.bool)}
    return tensordict.TensorDict({"observation": observation, "next": after}, [4, 4])


def test_torchrl_loss_is_the_loss_of_its_parts(torchrl):
    tensordict = pytest.importorskip("tensordict")
    torch.manual_seed(0)
    encoder = torch.nn.Linear(3, 8)
    module = torchrl.MetricLossModule(encoder, learn.simsr(0.9), dimensions=8)
    batch = batch_of(tensordict)
    out = module(batch)
    flat = batch.reshape(-1)
    with torch.no_grad():
        z, following = encoder(flat["observation"]), encoder(flat["next", "observation"])
        expected, said = learn.simsr(0.9)(
            z,
            None,
            flat["next", "reward"][:, 0],
            following,
            flat["next", "terminated"][:, 0],
            absorbing=module.task.absorbing,
        )
    assert float(out["loss_metric"].detach()) == pytest.approx(float(expected), rel=1e-6)
    assert float(out["spread"]) == pytest.approx(said.scalars()["spread"], rel=1e-6)
    out["loss_metric"].backward()
    online = module.encoder_network_params.flatten_keys().values()
    assert all(p.grad is not None for p in online)
    assert set(module.out_keys) == set(out.keys())


def test_torchrl_targets_follow_its_updater(torchrl):
    from torchrl.objectives import SoftUpdate

    tensordict = pytest.importorskip("tensordict")
    module = torchrl.MetricLossModule(torch.nn.Linear(3, 8), learn.dbc(0.9), dimensions=8)
    updater = SoftUpdate(module, tau=0.5)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    before = module.target_encoder_network_params.flatten_keys()["module.weight"].clone()
    module(batch_of(tensordict))["loss_metric"].backward()
    optimiser.step()
    online = module.encoder_network_params.flatten_keys()["module.weight"]
    assert not torch.equal(online, before)
    updater.step()
    after = module.target_encoder_network_params.flatten_keys()["module.weight"]
    assert torch.allclose(after, 0.5 * (before + online), atol=1e-6)


def test_torchrl_names_what_is_missing(torchrl):
    tensordict = pytest.importorskip("tensordict")
    module = torchrl.MetricLossModule(torch.nn.Linear(3, 8), learn.mico(0.9), dimensions=8)
    with pytest.raises(KeyError, match="set_keys"):
        module(tensordict.TensorDict({"observation": torch.zeros(4, 3)}, [4]))
    renamed = batch_of(tensordict).rename_key_("observation", "pixels")
    renamed["next"].rename_key_("observation", "pixels")
    module.set_keys(observation="pixels")
    assert torch.isfinite(module(renamed)["loss_metric"])

"""Metric losses inside other people's agents.

sb3       Stable-Baselines3: `MetricDQN`, a DQN whose features obey a metric loss
torchrl   TorchRL: `MetricLossModule`, one more LossModule to add to an agent's

Neither is loaded with `bisimetric.learn`; each needs its own package.
"""

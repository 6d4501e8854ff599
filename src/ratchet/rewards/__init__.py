"""Rewards: pure functions over a recorded rollout, and how they become one number."""

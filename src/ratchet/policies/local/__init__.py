"""The local policy: a checkpoint on this machine as a model. Only `engine.py` and `loading.py` load torch."""

from ratchet.policies.local.child import ChildSampler, open_local
from ratchet.policies.local.model import LocalModel
from ratchet.policies.local.weights import checkpoint_of, weights_hash

__all__ = ["ChildSampler", "LocalModel", "checkpoint_of", "open_local", "weights_hash"]

"""AdamW on a policy's adapter, with the same weights and the same steps on every rank."""

import math
from collections.abc import Callable
from typing import Any

import torch
from accelerate.utils import send_to_device

from llm_as_judge.policy.model import Policy
from llm_as_judge.rl.ranks import Ranks, add_up_gradients


class SharedAdamW(torch.optim.AdamW):
    """AdamW with equal steps on all ranks. Rank 0 calls ``share``, then sends work through ``ranks``; the others
    ``follow``.

    ``steps`` counts optimiser steps; it belongs in a checkpoint together with ``state_dict``.
    """

    def __init__(self, policy: Policy, ranks: Ranks, learning_rate: float, weight_decay: float) -> None:
        self.weights = policy.trainable_parameters()
        self.ranks, self.steps = ranks, 0
        super().__init__(self.weights, lr=learning_rate, betas=(0.9, 0.99), weight_decay=weight_decay)

    def clipped_step(self, learning_rate: float, max_norm: float) -> float:
        """Sums the gradients over ranks, clips them and takes a step; returns the norm before clipping.

        If the norm is not finite, no step is taken.
        """
        add_up_gradients(self.ranks, self.weights)
        norm = float(torch.nn.utils.clip_grad_norm_(self.weights, max_norm))
        if math.isfinite(norm):
            for group in self.param_groups:
                group["lr"] = learning_rate
            self.step()
            self.steps += 1
        self.zero_grad(set_to_none=True)
        return norm

    def share(self) -> None:
        """Sends weights and state to all ranks. Call it before the first work."""
        if self.ranks.size > 1:
            weights = [weight.detach().cpu() for weight in self.weights]
            state: Any = send_to_device(self.state_dict(), "cpu")
            self.ranks.tell((weights, state, self.steps))

    def follow(self, work: Callable[[Any], object]) -> None:
        """Does the ``work`` that rank 0 sends until the end of the run."""
        while (message := self.ranks.hear()) is not None:
            if isinstance(message, tuple):  # of ``share``
                weights, state, self.steps = message
                with torch.no_grad():
                    for weight, sent in zip(self.weights, weights, strict=True):
                        weight.copy_(sent)
                self.load_state_dict(state)
            else:
                work(message)

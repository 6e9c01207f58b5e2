"""Choice between shared-prefix tree and padded rows, each compared with the model's own forward pass on a first batch.

Otherwise a new model, another device or a new release of torch or transformers could give wrong gradients unnoticed.
"""

import inspect
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from llm_as_judge.errors import ConfigError, refusing
from llm_as_judge.policy.forward import own_precision
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.sampling import Sampling
from llm_as_judge.policy.scoring import Layout, cheaper_layout
from llm_as_judge.types import Completion

logger = logging.getLogger(__name__)

#: Largest difference of a log-probability in nats, by the model's precision. Two float32 passes over different batch
#: shapes differ by about 1e-6, a wrong mask or scale by 1e-2 and more.
_LOGPROB = {torch.float64: 1e-6, torch.float32: 1e-3}
#: The same for the mean in lower precision: two correct bfloat16 passes of a pretrained model differ by 0.01 or 0.02.
_MEAN_LOGPROB = 0.1


class CheckedLayout:
    """Chooses the layout of batches, and checks the first batch of each layout.

    ``shared_prefix`` True or False forces a layout. If it is None, prefixes are shared when the model allows it, it
    saves tokens and the check passes. ``budget`` is the number of tokens per forward pass.
    """

    def __init__(self, policy: Policy, shared_prefix: bool | None, budget: int) -> None:
        self._policy, self._shared_prefix, self._budget = policy, shared_prefix, budget
        self._checked: set[Layout] = set()

    def __call__(self, completions: Sequence[Completion], sampling: Sampling) -> Layout:
        """Choose the layout of a batch. Raises ``ConfigError`` if the model, or a forced layout, is not exact."""
        layout: Layout = "tree" if self._shared_prefix else "padded"
        if self._shared_prefix is None and not self._policy.why_no_tree(max(map(_length, completions))):
            layout = cheaper_layout(completions)
        if layout not in self._checked:
            try:
                check_layout(self._policy, completions, sampling, layout, self._budget)
            except ConfigError as error:
                if layout == "padded" or self._shared_prefix:
                    raise
                logger.warning("prefixes are not shared: %s", error)
                self._shared_prefix = False
                return self(completions, sampling)
            self._checked.add(layout)
        return layout


def plain_logprobs(base: Any, completion: Completion, temperature: float = 1.0) -> Tensor:
    """Compute log-probs [T] of a completion by the model's own forward pass: the reference of all checks."""
    ids = torch.tensor([[*completion.prompt_ids, *completion.token_ids]], device=base.device)
    count = len(completion.token_ids)
    last = {"logits_to_keep": count + 1} if "logits_to_keep" in inspect.signature(base.forward).parameters else {}
    with own_precision(base):
        logits = base(input_ids=ids, use_cache=False, **last).logits[0, -count - 1 : -1]
    logprobs = (logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature).log_softmax(-1)
    of_completion: Tensor = logprobs.gather(-1, ids[0, -count:, None])[:, 0]
    return of_completion


def apart(one: Tensor, other: Tensor, precision: torch.dtype) -> float:
    """Measure the difference in nats of two computations of the same log-probs, to be compared with ``tolerance``.

    The maximum over tokens; in low precision the mean, because rounding alone can move an unlikely token by half a nat,
    while a wrong computation moves all tokens.
    """
    gaps = (one.cpu() - other.cpu()).abs()
    return float(gaps.max() if precision in _LOGPROB else gaps.mean())


def tolerance(precision: torch.dtype) -> float:
    """Return the largest value of ``apart`` that is accepted."""
    return _LOGPROB.get(precision, _MEAN_LOGPROB)


def check_layout(
    policy: Policy, completions: Sequence[Completion], sampling: Sampling, layout: Layout, budget: int = 2**14
) -> None:
    """Compare log-probs of the longest and the shortest sequence, scored together, with ``plain_logprobs``.

    Raises ``ConfigError`` if they differ too much or the model cannot be scored. Sampling filters (top_p, top_k) are
    left out: between two nearly equal probabilities, rounding decides which one is kept.
    """
    pair = [max(completions, key=_length), min(completions, key=_length)]
    name, base, was_training = policy.base.config.model_type, policy.base, policy.model.training
    what = f"{name} cannot be trained {'with shared prefixes' if layout == 'tree' else 'here'}"
    cure = "set training.shared_prefix=false" if layout == "tree" else "choose another model"
    if policy.config.lora_dropout:  # the only noise that is left on in training
        policy.model.eval()
    try:
        with refusing(ConfigError, what, cure), torch.no_grad():
            found = policy.known_logprobs(pair, replace(sampling, top_p=1.0, top_k=0), layout, budget)
            policy.model.eval()
            own = [plain_logprobs(base, completion, sampling.temperature) for completion in pair]
    finally:
        policy.model.train(was_training)
    worst, most = apart(torch.cat(found), torch.cat(own), base.dtype), tolerance(base.dtype)
    if not worst <= most:  # not >, so that NaN fails
        raise ConfigError(
            f"{what}: its log-probabilities are {worst:.1e} nats off its own forward pass (at most {most:g}); {cure}"
        )
    logger.info("%s layout: log-probabilities within %.1e nats of the model's own forward pass", layout, worst)


def _length(completion: Completion) -> int:
    return len(completion.prompt_ids) + len(completion.token_ids)

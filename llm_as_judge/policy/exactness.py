"""Choice between shared-prefix tree and padded rows, and checks that scoring is exact on the first batch of a run.

Log-probabilities must equal those of the model's own forward pass, and the two layouts must agree. Otherwise a new
model, another device or a new release of torch or transformers could give wrong gradients unnoticed.
"""

import inspect
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from llm_as_judge.errors import ConfigError
from llm_as_judge.policy.forward import own_precision
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.sampling import Sampling
from llm_as_judge.policy.scoring import Layout, cheaper_layout
from llm_as_judge.types import Completion

logger = logging.getLogger(__name__)

#: Sequences of a prompt that are compared, of the two shortest prompts of the first batch. On a CPU sixteen
#: sequences of SmolLM2 took as long as five steps, four with long prompts of a 0.5B model 150 seconds.
SEQUENCES = 2

#: Largest difference of a log-probability in nats, by the model's precision. Two float32 passes over different batch
#: shapes differ by about 1e-6, a wrong mask or scale by 1e-2 and more.
_LOGPROB = {torch.float64: 1e-6, torch.float32: 1e-3}
#: The same for the mean in lower precision: two correct bfloat16 passes of a pretrained model differ by 0.01 or 0.02.
_MEAN_LOGPROB = 0.1
#: Largest difference of the gradient relative to its norm.
_GRADIENT = {torch.float64: 1e-5, torch.float32: 1e-3}
#: In bfloat16, SmolLM2 after its warm-up was off by 0.08 to 0.24; by 0.34 if a query of each node is missed, by 0.78 if
#: the backward pass leaves out ancestors.
_LOW_PRECISION_GRADIENT = 0.3


class CheckedLayout:
    """Chooses the layout of batches; the first batch of each layout is checked for exactness.

    ``shared_prefix`` True or False forces a layout. If it is None, prefixes are shared when the model allows it, it
    saves tokens and the check passes. ``budget`` is the number of tokens per forward pass.
    """

    def __init__(self, policy: Policy, shared_prefix: bool | None, budget: int) -> None:
        self._policy = policy
        self._shared_prefix = shared_prefix
        self._budget = budget
        self._checked: set[Layout] = set()

    def __call__(self, completions: Sequence[Completion], sampling: Sampling) -> Layout:
        """The layout of a batch. Raises ``ConfigError`` if the model, or a forced layout, is not exact."""
        if not self._checked:
            check_plain(self._policy, completions)
            self._checked.add("padded")
        layout = self._choice(completions)
        if layout not in self._checked:
            try:
                check_exact(self._policy, completions, sampling, self._budget)
            except ConfigError as error:
                if self._shared_prefix:
                    raise
                logger.warning("prefixes are not shared: %s", error)
                self._shared_prefix = False
                return "padded"
            self._checked.add(layout)
        return layout

    def _choice(self, completions: Sequence[Completion]) -> Layout:
        if self._shared_prefix is not None:
            return "tree" if self._shared_prefix else "padded"
        longest = max(map(_length, completions))
        return "padded" if self._policy.why_no_tree(longest) else cheaper_layout(completions)


def plain_logprobs(base: Any, completion: Completion) -> Tensor:
    """Log-probs [T] of a completion at temperature 1 by the model's own forward pass: the reference of all checks."""
    ids = torch.tensor([[*completion.prompt_ids, *completion.token_ids]], device=base.device)
    count = len(completion.token_ids)
    last = {"logits_to_keep": count + 1} if "logits_to_keep" in inspect.signature(base.forward).parameters else {}
    with own_precision(base):
        logits = base(input_ids=ids, use_cache=False, **last).logits[0, -count - 1 : -1]
    logprobs = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
    of_completion: Tensor = logprobs.gather(-1, ids[0, -count:, None])[:, 0]
    return of_completion


def apart(one: Tensor, other: Tensor, precision: torch.dtype) -> float:
    """Difference in nats between two computations of the same log-probs, to be compared with ``tolerance``.

    The maximum over tokens; in low precision the mean, because rounding alone can move an unlikely token by half a nat,
    while a wrong computation moves all tokens.
    """
    gaps = (one.cpu() - other.cpu()).abs()
    return float(gaps.max() if precision in _LOGPROB else gaps.mean())


def tolerance(precision: torch.dtype) -> float:
    """Largest value of ``apart`` that is accepted."""
    return _LOGPROB.get(precision, _MEAN_LOGPROB)


@contextmanager
def explained(what: str, cure: str) -> Iterator[None]:
    """Turns an error in a model's own code into a ``ConfigError``."""
    try:
        yield
    except (ConfigError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        raise ConfigError(f"{what} ({type(error).__name__}: {error}); {cure}") from error


def check_plain(policy: Policy, completions: Sequence[Completion]) -> None:
    """Compares log-probs of the longest and the shortest sequence, padded to each other, with ``plain_logprobs``.

    Raises ``ConfigError`` if they differ too much or the model cannot be scored.
    """
    pair = [max(completions, key=_length), min(completions, key=_length)]
    name, base, was_training = policy.base.config.model_type, policy.base, policy.model.training
    if policy.config.lora_dropout:  # the only noise that is left on in training
        policy.model.eval()
    try:
        with explained(f"{name} cannot be trained here", "see docs/reports/architectures.md"), torch.no_grad():
            scores = policy.logprobs(pair)
            policy.model.eval()
            own = [plain_logprobs(base, completion) for completion in pair]
    finally:
        policy.model.train(was_training)
    sampled = torch.tensor([own for completion in pair for own in completion.sampled])
    worst = apart(scores.logprobs[scores.mask], torch.cat(own)[sampled.to(base.device)], base.dtype)
    if not worst <= tolerance(base.dtype):  # not >, so that NaN fails
        raise ConfigError(
            f"log-probabilities of {name} are {worst:.1e} nats off its own forward pass (at most "
            f"{tolerance(base.dtype):g}), so it cannot be trained here; see docs/reports/architectures.md"
        )
    logger.info("log-probabilities: within %.1e nats of the model's own forward pass", worst)


def check_exact(policy: Policy, completions: Sequence[Completion], sampling: Sampling, budget: int = 2**14) -> None:
    """Compares the two layouts. Raises ``ConfigError`` if they differ; gradients stay as they were.

    Sampling filters (top_p, top_k) are left out: between two nearly equal probabilities, rounding decides which one is
    kept, so the distributions can differ although the logits agree.
    """
    sampling = replace(sampling, top_p=1.0, top_k=0)
    groups: dict[tuple[int, ...], list[Completion]] = {}
    for completion in completions:
        groups.setdefault(completion.prompt_ids, []).append(completion)
    compared = [one for prompt in sorted(groups, key=len) for one in groups[prompt][:SEQUENCES]][: 2 * SEQUENCES]
    budget = max(1, budget * len(compared) // len(completions))  # as many stages as the whole batch would take
    kept = [(p, p.grad) for p in policy.trainable_parameters()]
    name, cure = policy.base.config.model_type, "set training.shared_prefix=false to forward padded rows"
    layouts: tuple[Layout, Layout] = ("tree", "padded")
    try:
        with explained(f"prefixes of {name} cannot be shared", cure), torch.enable_grad():
            (tree, tree_gradient), (rows, gradient) = (
                _computed(policy, compared, sampling, layout, budget) for layout in layouts
            )
    finally:
        for parameter, grad in kept:
            parameter.grad = grad
    logprob = apart(tree, rows, policy.base.dtype)
    off = float((tree_gradient - gradient).norm() / gradient.norm().clamp(min=1e-30))
    most_logprob = tolerance(policy.base.dtype)
    most_gradient = _GRADIENT.get(policy.base.dtype, _LOW_PRECISION_GRADIENT)
    # not >, so that NaN fails
    if not (logprob <= most_logprob and off <= most_gradient):
        raise ConfigError(
            f"on the first batch, the shared-prefix and the padded computation of {name} differ by {logprob:.1e} nats "
            f"in a log-probability (at most {most_logprob:g}) and by {off:.1e} in the gradient (at most "
            f"{most_gradient:g}); {cure}"
        )
    logger.info("shared prefixes: log-probs within %.1e nats of padded rows, gradient %.1e", logprob, off)


def _computed(
    policy: Policy, completions: Sequence[Completion], sampling: Sampling, layout: Layout, budget: int
) -> tuple[Tensor, Tensor]:
    """Log-probs [M] of all tokens, and the gradient [parameters] of a sum that weights every token differently."""
    policy.model.zero_grad(set_to_none=True)
    logprobs: dict[int, Tensor] = {}
    for batch in policy.micro_batches(completions, sampling, layout, budget):
        scores, mask = batch.scores.logprobs, batch.scores.mask
        at = torch.arange(scores.shape[1], device=scores.device)
        weights = torch.stack([torch.sin(at + 3.0 * i) for i in batch.members])
        (scores * weights * mask).sum().backward()  # type: ignore[no-untyped-call]
        logprobs.update((i, row[own]) for i, row, own in zip(batch.members, scores.detach(), mask, strict=True))
    # In float32 or wider.
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in policy.trainable_parameters()]
    gradient = torch.cat([g.flatten().to(torch.promote_types(g.dtype, torch.float32)) for g in grads])
    return torch.cat([logprobs[i] for i in range(len(completions))]), gradient


def _length(completion: Completion) -> int:
    return len(completion.prompt_ids) + len(completion.token_ids)

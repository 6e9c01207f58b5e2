"""Loss and gradient equal those of TRL's ``GRPOTrainer._compute_loss``; skipped without the extra ``trl``."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.tiny import logprobs_of, tiny_policy
from helpers.update_case import batch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerFast

from llm_as_judge.config.schema import TrainingConfig
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.sampling import Sampling
from llm_as_judge.rl.loss import LossInputs, Normaliser, policy_loss

trl = pytest.importorskip("trl", reason="trl is not installed; make peers installs it")

LONGEST = 12
#: Our loss type: TRL's loss type and level of the ratio. In TRL, gspo is grpo with one ratio per sequence.
SHARED = {
    "grpo": ("grpo", "token"), "dr_grpo": ("dr_grpo", "token"), "dapo": ("dapo", "token"),
    "cispo": ("cispo", "token"), "gspo": ("grpo", "sequence"),
}  # fmt: skip


def policy() -> Policy:
    return tiny_policy(perturb=0.05, more={"initializer_range": 0.05})


def words_tokenizer() -> PreTrainedTokenizerFast:
    words = {word: i for i, word in enumerate(["<unk>", "<eos>", "<pad>", "go", *map(str, range(4, 24))])}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(words, unk_token="<unk>")), eos_token="<eos>", pad_token="<pad>"
    )


def trainer(directory: Path, policy: Policy, **options: Any) -> Any:
    from datasets import Dataset

    sizes = {"per_device_train_batch_size": 4, "num_generations": 4, "max_completion_length": LONGEST, "epsilon": 0.2}
    quiet = {"bf16": False, "use_cpu": True, "report_to": [], "gradient_checkpointing": False, "disable_tqdm": True}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = trl.GRPOTrainer(
            model=policy.model, reward_funcs=lambda completions, **named: [0.0] * len(completions),
            args=trl.GRPOConfig(output_dir=str(directory), **sizes, **quiet, **options),
            train_dataset=Dataset.from_dict({"prompt": ["go"] * 4}), processing_class=words_tokenizer(),
        )  # fmt: skip
    made.current_gradient_accumulation_steps = 1
    return made


def noisy(values: torch.Tensor, scale: float, seed: int) -> torch.Tensor:
    return values + scale * torch.randn(values.shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("corrected", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("loss_type", SHARED)
@pytest.mark.parametrize("turns", [False, True])
def test_loss_and_gradient_equal_trls(tmp_path: Path, loss_type: Any, corrected: bool, turns: bool) -> None:
    ours = policy()
    completions = batch(ours)
    if turns:  # the second quarter of each completion was given
        given = [range(len(c.token_ids) // 4, len(c.token_ids) // 2) for c in completions]
        masks = [
            tuple(i not in own for i in range(len(c.token_ids))) for c, own in zip(completions, given, strict=True)
        ]
        assert not all(map(all, masks))
        completions = [replace(c, mask=mask) for c, mask in zip(completions, masks, strict=True)]
    scores = logprobs_of(ours, completions, Sampling(), shared_prefix=True)
    mask, new = scores.mask, scores.logprobs.detach()
    old, reference = noisy(new, 0.3, 1), noisy(new, 0.3, 2)
    advantages = torch.linspace(-1, 1.5, len(completions))
    settings = TrainingConfig(
        loss_type=loss_type, beta=0.1, use_bias_correction_kl=corrected, epsilon=0.2, epsilon_high=0.28,
        importance_sampling="off", response_max_length=LONGEST,
    )  # fmt: skip
    inputs = LossInputs(scores.logprobs, advantages, mask, old, reference, scores.entropy)
    found = policy_loss(inputs, settings, Normaliser(len(completions), int(mask.sum()))).loss
    ours.model.zero_grad(set_to_none=True)
    found.backward()
    gradient = [p.grad.clone() for p in ours.trainable_parameters if p.grad is not None]

    name, level = SHARED[loss_type]
    high = 1.28 if name == "cispo" else 0.28  # in TRL the cap itself
    options = {"loss_type": name, "importance_sampling_level": level, "beta": 0.1, "epsilon_high": high}
    theirs = trainer(tmp_path, ours, use_bias_correction_kl=corrected, **options)
    batch_of_trl: dict[str, Any] = {
        "advantages": advantages, "old_per_token_logps": old, "ref_per_token_logps": reference,
        "num_items_in_batch": mask.sum(),
    }  # fmt: skip
    for key, side, field in (("prompt", "left", "prompt_ids"), ("completion", "right", "token_ids")):
        rows = [torch.tensor(getattr(c, field)) for c in completions]
        batch_of_trl[f"{key}_ids"] = pad_sequence(rows, True, 0, side)
        batch_of_trl[f"{key}_mask"] = pad_sequence([torch.ones_like(row) for row in rows], True, 0, side)
    if turns:
        batch_of_trl["tool_mask"] = pad_sequence([torch.tensor(c.mask).int() for c in completions], True, 1)
    theirs.model.train()
    ours.model.zero_grad(set_to_none=True)
    expected = theirs._compute_loss(theirs.model, batch_of_trl)
    expected.backward()
    assert float(found) == pytest.approx(float(expected), rel=1e-4, abs=1e-6)
    for mine, parameter in zip(gradient, ours.trainable_parameters, strict=True):
        assert parameter.grad is not None
        assert float((mine - parameter.grad).abs().max()) <= 1e-4 * float(parameter.grad.abs().max())

"""The experience buffer as the training loop and the prompts use it."""

from __future__ import annotations

from collections.abc import Sequence

from llm_as_judge.config.schema import BufferConfig
from llm_as_judge.experience.buffer import Experience, ExperienceBuffer
from llm_as_judge.experience.embedding import SentenceEmbedder, TextEmbedder
from llm_as_judge.types import Group, Question
from llm_as_judge.workflow.shapes import Example


class Recall(ExperienceBuffer):
    """Finds examples for a question and keeps good workflows; ``config.reuse`` starts with those of an earlier run.

    ``config.embedder`` is ``policy`` (its own hidden states) or the name of a sentence-transformers model.
    """

    def __init__(self, config: BufferConfig, policy: TextEmbedder) -> None:
        embedder = policy if config.embedder == "policy" else SentenceEmbedder(config.embedder)
        super().__init__(config, embedder.embed)
        if config.reuse:
            self.load()

    def examples(self, question: Question) -> list[Example]:
        """Good workflows for the most similar problems; ``assembly.training.prompt_within`` keeps those that fit."""
        experiences = self.top_k(question.statement, question.domain, problem_id=question.id)
        return [Example(e.problem_text, e.workflow) for e in experiences]

    def update(self, groups: Sequence[Group], step: int) -> None:
        """Adds the right rollouts of a finished step."""
        for rollout in (r for group in groups for r in group.rollouts):
            question, reward = rollout.problem.question, rollout.reward.total
            if rollout.verdict.correct and reward is not None:
                self.add(Experience(question.id, question.statement, rollout.workflow, reward, question.domain, step))
        if self.config.max_age:
            self.expire(step - self.config.max_age)

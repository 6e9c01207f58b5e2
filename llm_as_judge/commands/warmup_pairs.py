"""Training pairs of ``llm-as-judge warmup``: prompts as in training, each with a workflow to be written for it."""

import itertools
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from random import Random

import msgspec

from llm_as_judge.assembly.problems import open_problems
from llm_as_judge.config.schema import Config
from llm_as_judge.errors import DataError
from llm_as_judge.evaluation.evaluate import PolicyAuthor
from llm_as_judge.files import LONGEST_TABLE, read_source
from llm_as_judge.operators.catalog import load_operators
from llm_as_judge.types import Completion, Domain, Execution, OperatorCall, Question
from llm_as_judge.workflow import recipes
from llm_as_judge.workflow.contract import ASKED_PREFILL, PREFILL
from llm_as_judge.workflow.feedback import message
from llm_as_judge.workflow.lint.check import lint

#: Workflows of each held-out problem whose loss is measured.
_HELD_OUT = 4
_HELD_OUT_PROBLEMS = 9
_ASKED_WORDS = 30
#: Attempts at a fatal fault in a workflow; without one the pair is of a run that failed.
_TRIES = 20


class _Own(msgspec.Struct):
    domain: Domain
    workflow: str


class Pairs:
    """Generated workflows, or the user's own, for the configured training problems."""

    def __init__(self, config: Config, author: PolicyAuthor) -> None:
        """Raise ``DataError`` for too few problems and for workflows that cannot be used."""
        self.config, self.author = config, author
        self._operators, self._varied = load_operators(config.workflow.operators), config.warmup.varied
        self._lint = partial(lint, operators=self._operators, executors=config.executors)
        self._rng = Random(f"warm-up/{config.training.seed}")
        drawn = open_problems(config, measured=False).sampler.sample(64)
        questions = list({p.question.id: p.question for p in drawn}.values())
        held_out = min(_HELD_OUT_PROBLEMS, len(questions) // 2)
        self.held_out_questions, training = questions[:held_out], questions[held_out:]
        self._training = {d: [q for q in training if q.domain == d] for d in dict.fromkeys(q.domain for q in training)}
        if not held_out:
            raise DataError(f"{len(questions)} training problems are too few to hold some out for the warm-up")
        file = config.warmup.own_workflows
        self._own = self._read_own(file) if file else []
        head = PREFILL if config.workflow.prefill else ""
        if other := next((source for _, source in self._own if not source.startswith(head)), ""):
            raise DataError(
                f"{file}: with workflow.prefill every workflow must begin with {head!r}; one "
                f"begins with {other[: len(head)]!r}: change it, or set workflow.prefill to false"
            )

    def draw(self) -> list[Completion]:
        """Draw the pairs of one step: ``workflows_per_problem`` for each of ``problems_per_step`` problems."""
        settings = self.config.warmup
        domains = self._rng.sample(sorted(self._training), len(self._training))
        return [
            self._pair(question, self._rng)
            for domain in itertools.islice(itertools.cycle(domains), settings.problems_per_step)
            for question in [self._rng.choice(self._training[domain])]
            for _ in range(settings.workflows_per_problem)
        ]

    def held_out(self) -> list[Completion]:
        """Return pairs of problems that no step sees, the same every time."""
        rng = Random("warm-up, held out")
        return [self._pair(question, rng) for question in self.held_out_questions for _ in range(_HELD_OUT)]

    def _pair(self, question: Question, rng: Random) -> Completion:
        source = self._source(question, rng)
        if not self.config.workflow.repairs or rng.random() < 0.5:
            return self._completion(question, source)
        return self._repair(question, source, rng)

    def _source(self, question: Question, rng: Random) -> str:
        if own := [source for of, source in self._own if of == question.domain]:
            return rng.choice(own)
        recipe, varied = recipes.draw_recipe(question.kind, rng, self._operators), self._varied
        head, executors = self.config.workflow.prefill, [*self.config.executors]
        write = partial(recipes.write, recipe, question.kind, rng, varied=varied, one_instruction=not varied)
        return write(class_first=head, executors=executors)

    def _repair(self, question: Question, source: str, rng: Random) -> Completion:
        """Make a second turn: a workflow with a fault is written without it, one that failed gives way to another."""
        repaired = source
        if broken := self._broken(source, rng) if rng.random() < 0.5 else None:
            source, told = broken
        else:
            facts = self._lint(source)
            others = [self._source(question, rng) for _ in range(10)]
            repaired = next((other for other in others if self._lint(other).shape != facts.shape), others[0])
            told = _failed(question, facts.shape.partition(">")[0], self.config.executor.max_tokens)
        first = self._completion(question, source)
        return self._completion(question, repaired, self.author.policy.told(first, told))

    def _completion(self, question: Question, source: str, prompt_ids: Sequence[int] = ()) -> Completion:
        """Return ``source`` as the reply to the question's prompt, or to ``prompt_ids``."""
        policy, workflow, prompt = self.author.policy, self.config.workflow, self.author.prompt(question)
        if prompt.prefill == ASKED_PREFILL:
            # The last sentence of the problem on one line, or the last words of a long one.
            sentence = re.split(r"(?<=[^A-Z][.?!])\s+", question.text.rstrip())[-1]
            reply = f"{' '.join(sentence.split()[-_ASKED_WORDS:])}\n        self.{source.removeprefix(PREFILL)}"
        else:
            fenced = workflow.layer1 and workflow.prompt == "full"
            reply = (f"```python\n{source}\n```" if fenced else source).removeprefix(prompt.prefill)
        ids = policy.tokenizer.encode(reply, add_special_tokens=False)
        end = policy.tokenizer.eos_token_id
        given = tuple(prompt_ids or policy.encode(prompt))
        return Completion(reply, given, (*map(int, ids), int(end)), (), "stop", prefill=prompt.prefill)

    def _broken(self, source: str, rng: Random) -> tuple[str, str] | None:
        """Replace a name in ``source``, so that lint refuses it; returns the text and what a policy is told."""
        body = source.removeprefix(PREFILL)
        head, words = source.removesuffix(body), list(re.finditer(r"\b[A-Za-z]\w{2,}", body))
        for _ in range(_TRIES):
            place, other = rng.choice(words), rng.choice(words)[0]
            text = head + body[: place.start()] + other + body[place.end() :]
            facts = self._lint(text)
            if facts.shape != "invalid" and any(finding.fatal for finding in facts.findings):
                return text, message(Execution("invalid", None, findings=facts.findings))
        return None

    def _read_own(self, path: Path) -> list[tuple[str, str]]:
        """Read domain and workflow of each line of a JSONL file. Raises ``DataError`` for one that cannot be used."""
        found = list[tuple[str, str]]()
        try:
            for number, line in enumerate(read_source(path, LONGEST_TABLE).splitlines(), 1):
                record = msgspec.json.decode(line, type=_Own)
                if fatal := next((finding for finding in self._lint(record.workflow).findings if finding.fatal), None):
                    raise DataError(f"{path}:{number}: {fatal.code} line {fatal.line}: {fatal.message}")
                found.append((record.domain, record.workflow))
        except (msgspec.DecodeError, RecursionError) as error:
            reason = "cannot be read as JSONL with domain and workflow on each line"
            raise DataError(f"warmup.own_workflows={path}: {reason}: {error}") from error
        return found


def _failed(question: Question, operator: str, limit: int) -> str:
    """Say what a policy is told if the run of its workflow fails: a public test, or else a reply that is too long."""
    if question.public_tests:
        return message(Execution("finished", ""), [f"the answer fails a public test: {question.public_tests[0]}"])
    error = f"the model's reply was cut off after {limit} tokens"
    return message(Execution("finished", "", (OperatorCall(operator, {}, {"parse_ok": False}, error=error),)))

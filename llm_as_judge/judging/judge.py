"""The judge: tests for code, then rules that only accept, then the LLM judge; the first that decides wins.

In the mode ``metric`` the benchmark's usual scorer decides. A wrong or missing answer is False; a sandbox fault
or an unavailable judge is None (unscored). Partial credit (F1) is reported with the verdict and never decides it.
"""

import asyncio
import logging
import re
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from functools import partial

from llm_as_judge.answers import algebra
from llm_as_judge.answers.code import defining_block
from llm_as_judge.answers.equivalence import compare
from llm_as_judge.answers.extraction import extract_answer
from llm_as_judge.answers.metrics import scores as scores_of
from llm_as_judge.answers.nonanswers import is_no_answer, refused
from llm_as_judge.config.endpoints import JudgeConfig
from llm_as_judge.data.catalog import metric_of
from llm_as_judge.errors import ConfigError, InfrastructureError, SandboxFault
from llm_as_judge.judging.llm_judge import LLMJudge
from llm_as_judge.judging.prompts import fence
from llm_as_judge.llm.client import ChatModel
from llm_as_judge.sandbox.host import Sandbox
from llm_as_judge.sandbox.results import CodeVerdict
from llm_as_judge.types import Problem, Question, Reference, Verdict

logger = logging.getLogger(__name__)

#: Rules and tests alone, without a model: what the rules leave undecided counts as wrong.
RULES_ONLY = JudgeConfig(mode="rules")
#: What evaluations use in every mode.
OFFICIAL = JudgeConfig(mode="metric")

_WITHHELD = re.compile(r"(?:ModuleNotFound|FileNotFound|Permission|BlockingIO)Error|can't start new thread")

_PROVERS = ThreadPoolExecutor(algebra.WORKERS, thread_name_prefix="algebra")


class Judge:
    """``hybrid``: rules, then the LLM; ``llm``: no rules; ``rules``: no model; ``metric``: the usual scorer, no model.

    Code with hidden tests goes to the sandbox in every mode. A True of ``llm`` needs that of ``second``. Where
    ``metric`` has no scorer the rules decide, and the last box, tag or ``####`` line of a maths reply counts wherever
    it is. Raises ``ConfigError`` if a mode lacks its model.
    """

    def __init__(
        self, config: JudgeConfig, llm: ChatModel | None = None, sandbox: Sandbox | None = None,
        second: ChatModel | None = None,
    ) -> None:  # fmt: skip
        if config.asks_model and llm is None:
            raise ConfigError(f"judge.mode = {config.mode} needs a judge model; configure one or set judge.mode=rules")
        self._mode = config.mode
        self._warned: set[str] | None = None if config is OFFICIAL else set()
        self._llm = None if llm is None or not config.asks_model else LLMJudge(config, llm, second)
        self._sandbox = sandbox

    async def verdict(self, problem: Problem, answer: str | None, cut_off: bool = False) -> Verdict:
        """Judge ``answer``, which is None if there is none. Never raises, whatever the answer says.

        ``cut_off``: the reply ended at its token limit. The rules then count only a closed box or tag; the model is
        informed.
        """
        question, reference = problem.question, problem.reference
        if self._mode == "metric" and not reference.tests and (scored := await self._scored(problem, answer)):
            return scored
        if reference.unanswerable and answer is not None and is_no_answer(answer):
            return Verdict(True, "rules", "no answer, as the reference says")
        if answer is None or not answer.strip():
            return Verdict(False, "rules", "no answer given")
        if not reference.given:
            return Verdict(None, "none", "the problem has neither an answer nor tests to judge by")
        if reference.tests:
            return await self._run_tests(question, reference, answer)
        references = ("unanswerable",) if reference.unanswerable else reference.answers
        if self._mode != "llm" and not reference.unanswerable and await self._accepted(problem, answer, cut_off):
            return Verdict(True, "rules", "equivalent to a reference")
        if kind := refused((answer, fence(answer), extract_answer(answer, question.kind)), references, question.text):
            return Verdict(False, "rules", f"no answer but {kind}")
        if self._llm is None:
            return Verdict(False, "rules", "undecided by the rules, and no model to ask: counted as wrong")
        return await self._llm.decide(question.text, references, answer, question.dataset, cut_off)

    def without_rules(self) -> "Judge":
        """Return a judge with the same models in the mode ``llm``."""
        alone = copy(self)
        alone._mode = "llm"
        return alone

    def scores(self, problem: Problem) -> bool:
        """Tell whether hidden tests or a usual scorer decide, and not the rules."""
        return bool(problem.reference.tests) or metric_of(problem.question) not in ("accuracy", "pass@k")

    async def _scored(self, problem: Problem, answer: str | None) -> Verdict | None:
        """Judge by the benchmark's usual scorer; None if there is none."""
        metric = metric_of(problem.question)
        ask = partial(scores_of, metric, answer, problem.question, problem.reference)
        try:
            found = await asyncio.get_running_loop().run_in_executor(_PROVERS, ask) if metric == "math" else ask()
        except InfrastructureError as error:
            return Verdict(None, "metric", str(error))
        if not found:
            dataset = problem.question.dataset
            if self._warned is not None and dataset not in self._warned and metric != "math":  # warns itself
                self._warned.add(dataset)
                what = f"dataset {dataset!r} has no usual scorer" if dataset else "problems without a dataset"
                cure = "name a benchmark in their field 'dataset', such as gsm8k, or set judge.mode=rules"
                logger.warning("judge.mode=metric: %s: the rules judge them; %s", what, cure)
            return None
        name, score = next(iter(found.items()))
        return Verdict(score == 1, "metric", f"{name} is {score:g}", scores=found)

    async def _accepted(self, problem: Problem, answer: str, cut_off: bool) -> bool:
        """Tell whether the rules accept the answer. Proofs run in threads, so that they do not delay other answers."""
        question, answers = problem.question, problem.reference.answers
        ask = partial(
            compare, answer, answers, question.kind, question.text, cut_off=cut_off, any_mark=self._mode == "metric"
        )
        said = ask(effort_s=0)
        if said == "unproved":
            said = await asyncio.get_running_loop().run_in_executor(_PROVERS, ask)
        return said == "same"

    async def _run_tests(self, question: Question, reference: Reference, answer: str) -> Verdict:
        if self._sandbox is None:
            return Verdict(None, "tests", "no sandbox to run the tests in")
        name = question.entry_point or ""
        source = defining_block(answer, name, question.text)
        try:
            found = await self._sandbox.verdict(source, reference.tests, name, prelude=question.prelude)
        except SandboxFault as error:
            found = CodeVerdict(False, "fault", error=str(error))
        if found.outcome == "fault":
            return Verdict(None, "tests", f"sandbox fault: {found.error}")
        weak = " (weak: a solution made to deceive could have forged it)" if found.weak else ""
        reason = "tests passed" if found.passed else f"tests failed: {found.outcome}: {found.error}"
        if not found.passed and _WITHHELD.search(found.error):
            reason += " (the sandbox has no files, threads, processes, network or packages such as numpy)"
        return Verdict(found.passed, "tests", reason + weak)

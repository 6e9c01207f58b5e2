"""Files of evaluation records, named by a digest of everything that affects the records, so that they can be reused."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from llm_as_judge.answers.metrics import verifies_math
from llm_as_judge.assembly.policy import adapter_digest, load_author
from llm_as_judge.assembly.progress import Progress
from llm_as_judge.assembly.services import Services
from llm_as_judge.config.identity import content_of, decisive, digest
from llm_as_judge.config.loading import locate_weights
from llm_as_judge.config.schema import POLICY, Config
from llm_as_judge.data.catalog import metric_of
from llm_as_judge.evaluation.evaluate import Author, Given, evaluate
from llm_as_judge.evaluation.records import Ledger
from llm_as_judge.files import locked
from llm_as_judge.judging.grading import Ranking
from llm_as_judge.judging.judge import OFFICIAL
from llm_as_judge.judging.own import OwnJudge
from llm_as_judge.policy.device import on_device
from llm_as_judge.types import Group, Problem, Question


@contextmanager
def recording(records: Path, resume: bool = True) -> Iterator[Ledger]:
    """Open the ledger in ``records``. Raises ``ConfigError`` if another process has it open."""
    with locked(records, "being written by", "wait for it, then --resume"), Ledger(records, resume) as ledger:
        yield ledger


async def policy_results(
    name: str, config: Config, checkpoint: Path | None = None, *, source: str, problems: Sequence[Problem],
    services: Services, progress: Progress, author: Author | None = None,
) -> Sequence[Group]:  # fmt: skip
    """Sample rollouts of the policy with the adapter in ``checkpoint``. Existing records of the same policy and
    problems are reused; if none is missing, no policy is loaded. ``name`` is shown by ``progress``.
    """
    with recording(policy_records(config, source, problems, checkpoint)) as ledger:
        if author is None and len(ledger.known) < len(problems):
            author = policy = await on_device(load_author, config, checkpoint, progress=progress)
            await services.hosted.share(policy)
        advance = partial(progress.advance, name)
        return await evaluate(problems, author or Given(lambda _: ""), services.official, advance, log=ledger)


async def tell_untrained(
    config: Config, sets: Iterable[Sequence[Problem]], services: Services, said: Progress, author: Author | None = None
) -> None:
    """Give a judge that ranks the untrained policy's answers to ``sets`` of problems, generated once, to compare with.

    Evaluations must be of the same sets: others draw other workflows. ``author`` is that policy, if it is loaded.
    """
    judge, told = services.official.judge, dict[Question, str | None]()
    if not isinstance(judge, OwnJudge) or not isinstance(ranking := judge.grader, Ranking):
        return
    ranking.untrained, plain = {}, config.model_copy(update={"judge": OFFICIAL})
    for asked in filter(None, sets):
        found = await policy_results(
            "policy to compare with", plain, source="untrained", problems=asked, services=services, progress=said,
            author=author,
        )  # fmt: skip
        for of, (rollout,) in ((group.problem.question, group.rollouts) for group in found):
            told[of] = None if rollout.verdict.correct is None else rollout.execution.answer or ""
    ranking.untrained = told


def policy_records(
    config: Config, source: str, problems: Sequence[Problem], checkpoint: Path | None, samples: int = 1,
    given: Sequence[str] = (),
) -> Path:  # fmt: skip
    """Name the file for the policy's workflows on ``problems``, by ``source``; ``given``: texts used instead of it."""
    settings = decisive(config, ("model", "generation", "executor", "sandbox", "workflow"))
    model = {name: settings["model"][name] for name in ("model_name", "adapter", "dtype")}
    training = [config.training.seed, config.training.response_max_length]
    policy = [{**settings, "model": model}, adapter_digest(checkpoint), samples, training, *_weights(config), *given]
    return _file(config, "evaluation", f"{config.base_model.key}_{source}", problems, policy)


def method_ledger(
    config: Config, source: str, problems: Sequence[Problem], method: str, decided_by: Sequence[object]
) -> AbstractContextManager[Ledger]:
    """Open the ledger of a method without policy on ``problems``; ``decided_by`` is what else decides its records."""
    settings = decisive(config, ("executor", "sandbox", "workflow"))
    del settings["workflow"]["repairs"]  # only the policy repairs
    parts = [settings, list(map(str, decided_by)), *_weights(config)]
    return recording(_file(config, "comparison", f"{source}_{method}", problems, parts))


def _weights(config: Config) -> list[str]:
    """List what decides the answers of executors in this process, and is not in their settings."""
    local = [own.model for own in (config.executor, *config.executors.values()) if own.provider == "local"]
    places = [config.base_model.path if model == POLICY else model for model in local]
    known = [content_of(Path(locate_weights(place))) for place in places]
    return [*known, config.model.dtype, config.generation.engine] if known else []


def _file(config: Config, folder: str, name: str, problems: Sequence[Problem], parts: Sequence[Any]) -> Path:
    """Name the file, ending in eight hexadecimal digits of what decides the records."""
    scored = [metric_of(p.question) for p in problems]
    by: list[Any] = ["official", "math" in scored and verifies_math()]
    if config.judge.own:
        by.append(decisive(config, ("judge",)))
    if config.judge.relative:  # the other answers
        by += [decisive(config, ("model", "generation")), config.training.seed]
    decided_by = digest([[repr(problem) for problem in problems], *parts, *by])
    return config.output.results_dir / folder / f"{name}_{decided_by[:8]}.jsonl"

"""Training and evaluation problems of a run: those of the embedded world, or from the configured files."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path

from llm_as_judge.config.data import DataConfig
from llm_as_judge.config.schema import Config
from llm_as_judge.data.problems import measured_problems, read_problems, spread, unseen
from llm_as_judge.data.sampler import DomainSampler
from llm_as_judge.errors import ConfigError
from llm_as_judge.types import DOMAINS, Domain, Problem

#: Problems of the embedded world, written by ``scripts/nano/problems.py``; half of each domain's are of one kind.
_EMBEDDED = Path(__file__).parents[1] / "embedded/problems"
_EMBEDDED_VALIDATION = 60


@dataclass(frozen=True, slots=True)
class Problems:
    """Problems for training, validation (``training.eval_every``) and the final evaluation."""

    sampler: DomainSampler
    validation: Sequence[Problem]
    heldout: Sequence[Problem]  # the same in every run; distinct from ``validation``
    seen: int = 0  # number of held-out problems that are also training problems

    @property
    def digest(self) -> str:
        """Identifies the training problems."""
        return str(self.sampler.state_dict()["problems"])

    def __iter__(self) -> Iterator[Problem]:
        return chain(self.sampler.peek(None), self.validation, self.heldout)


def open_problems(config: Config, *, measured: bool = True) -> Problems:
    """Open the problems of a training run, with held-out ones if ``measured``.

    Raises ``ConfigError`` for a missing file name, ``DataError`` for an unusable file.
    """
    data, validating = config.data, config.training.eval_every > 0
    if data.generated:
        training = [problem for pool in _pools(data, "train", data.max_problems).values() for problem in pool]
        others = _pools(data, "validation") if validating else {}
        fresh = {domain: unseen(pool, training) for domain, pool in others.items()}
        validation = DomainSampler(fresh, data.domain_ratios).sample(_EMBEDDED_VALIDATION) if validating else []
    else:
        training = _read(data, "train_dataset", data.max_problems)
        validation = _read(data, "val_dataset", data.eval_problems) if validating else []
    by_domain = {d: [p for p in training if p.question.domain == d] for d in data.domain_ratios}
    sampler = DomainSampler(by_domain, data.domain_ratios, config.training.seed)
    heldout = heldout_problems(data) if measured else []
    return Problems(sampler, validation, heldout, len(heldout) - len(unseen(heldout, training)))


def heldout_problems(data: DataConfig, limit: int | None = None) -> list[Problem]:
    """Read ``eval_problems`` held-out problems, at most ``limit``: generated, or spread over ``test_dataset``."""
    if data.generated:
        pools = _pools(data, "heldout", data.eval_problems)
        if scarce := [d for d, pool in pools.items() if len(pool) < data.eval_problems * data.domain_ratios[d]]:
            raise ConfigError(
                f"data.eval_problems={data.eval_problems}: the embedded world has {len(pools[scarce[0]])} held-out "
                f"problems of {scarce[0]}; ask for fewer"
            )
        return DomainSampler(pools, data.domain_ratios).sample(data.eval_problems)[:limit]
    return _read(data, "test_dataset", min(limit or data.eval_problems, data.eval_problems))


def _read(data: DataConfig, name: str, limit: int | None) -> list[Problem]:
    path: Path | None = getattr(data, name)
    if path is None:
        hint = ", or set eval_every=0" if name == "val_dataset" else ""
        raise ConfigError(f"data.{name} is not set; name a JSONL file{hint}")
    if name == "train_dataset":  # its copies are drawn more often
        problems = read_problems(path, data)
        return spread(problems, limit) if limit else problems
    return measured_problems(path, limit, data)


def _pools(data: DataConfig, name: str, limit: int | None = None) -> dict[Domain, list[Problem]]:
    """Take the first ``limit`` problems of each domain with a share."""
    found = embedded_problems(name)
    return {d: [p for p in found if p.question.domain == d][:limit] for d in DOMAINS if data.domain_ratios[d] > 0}


@lru_cache
def embedded_problems(name: str) -> tuple[Problem, ...]:
    """Read the problems ``train``, ``validation`` or ``heldout`` of the embedded world."""
    return tuple(replace(problem, place="") for problem in read_problems(_EMBEDDED / f"{name}.jsonl.gz"))

"""Writer and reader of a run's log: one event (``events``) per line as JSON, append-only, readable while it grows.

log = EventLog("logs/run.jsonl")
log.log(CheckpointEvent(step=1, path="checkpoints/step_1"))
reader = LogReader("logs/run.jsonl")
for event in reader.new(): ...
reader.steps, reader.usage, reader.seconds
"""

import logging
import math
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, is_dataclass, replace
from dataclasses import fields as fields_of
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from llm_as_judge.config.schema import Config
from llm_as_judge.errors import ConfigError, DataError
from llm_as_judge.events import (
    EvalEvent,
    Event,
    LayersEvent,
    PromptEvent,
    RolloutEvent,
    RunEvent,
    StepReport,
    UsageEvent,
)
from llm_as_judge.files import cut, naming
from llm_as_judge.types import Completion, Exchange, Execution, OperatorCall, Problem, Question, Rollout

logger = logging.getLogger(__name__)

#: Bytes of one rollout in a log; longer texts are cut in their middle until the rollout fits.
ROLLOUT_BYTES = 256_000
_LONGEST = (100, 200, 800, 4_000, 20_000)  # characters of a text: the last that fits
_FEWEST = 64  # items that are kept of any list
_KIND = re.compile(rb'"kind": ?"(\w+)"')
_HEAD = 120  # bytes of a line that contain its kind
_OLD = "read the file with that version, or move it away and run again"
_PROMPTS = 5_000  # prompts kept until their step is finished


@dataclass(frozen=True, slots=True)
class FinishedStep:
    """A step with everything that belongs to it; ``system`` is the system prompt that all problems share."""

    run: RunEvent
    report: StepReport
    rollouts: Sequence[RolloutEvent]
    prompts: Mapping[str, PromptEvent]  # by problem, those of this step
    system: str

    def members(self) -> Iterator[tuple[RolloutEvent, int, PromptEvent]]:
        """Yield each rollout with its number in its group and its prompt, without text if the log lacks it."""
        numbers = Counter[str]()
        for event in self.rollouts:
            numbers[problem := event.rollout.problem.question.id] += 1
            missing = PromptEvent(problem=problem, user="", question=problem)
            yield event, numbers[problem], self.prompts.get(problem, missing)


class EventLog(AbstractContextManager["EventLog"]):
    """Appends events to a file. Several writers may share it: every event is one write of one line."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        size = os.fstat(self._file).st_size
        #: A crash or a full disk left the last line incomplete; the next event starts a new line.
        self._torn = bool(size) and os.pread(self._file, 1, size - 1) != b"\n"

    def log(self, event: Event) -> None:
        """Write one event. NaN and infinity become null, a rollout takes at most ``ROLLOUT_BYTES``.

        Raises ``OSError`` with the name of the file.
        """
        line = encoded(event) + b"\n"
        if self._torn:
            line = b"\n" + line
        with naming(self.path):
            while line:
                line = line[os.write(self._file, line) :]
                self._torn = bool(line)

    def __exit__(self, *exception: object) -> None:
        os.close(self._file)


def encoded(event: Event) -> bytes:
    """Encode the event as a line without its end."""
    if not isinstance(event, RolloutEvent):
        return msgspec.json.encode(plain(event))
    event, line = msgspec.structs.replace(event, rollout=_logged(event.rollout)), b""
    for longest in _LONGEST:  # not from the longest: it may take much memory
        longer = msgspec.json.encode(plain(event, longest))
        if len(longer) > ROLLOUT_BYTES:
            break
        line = longer
    return line or msgspec.json.encode(plain(msgspec.structs.replace(event, rollout=bare(event.rollout)), _LONGEST[0]))


def _logged(rollout: Rollout) -> Rollout:
    """Reduce a rollout for the log: no token ids, no texts of the question, no hidden tests where there are answers."""
    question, reference, completion = rollout.problem.question, rollout.problem.reference, rollout.completion
    return replace(
        rollout,
        problem=Problem(
            Question(question.id, "", question.domain, dataset=question.dataset, like=question.like),
            replace(reference, tests="" if reference.answers else reference.tests),
        ),
        completion=replace(completion, prompt_ids=(), token_ids=(), logprobs=(), mask=(), dropped=completion.written),
        execution=replace(rollout.execution, crashes=()),
    )


def bare(rollout: Rollout) -> Rollout:
    """Strip a rollout of the texts of its calls and of the judge, but keep all figures."""

    def cut_down(run: Execution) -> Execution:
        return replace(run, calls=tuple(call.bare for call in run.calls))

    return replace(
        rollout,
        execution=cut_down(rollout.execution),
        verdict=replace(rollout.verdict, exchanges=()),
        attempts=tuple(replace(attempt, execution=cut_down(attempt.execution)) for attempt in rollout.attempts),
    )


def plain(event: Event, longest: int | None = None) -> dict[str, Any]:
    """Return the event as JSON data, with its kind and time first; ``longest`` as for ``json_data``."""
    fields = {name: json_data(getattr(event, name), longest) for name in event.__struct_fields__}
    return {"kind": event.__struct_config__.tag, **fields, "time": event.time or time.time()}


class LogReader:
    """Reads a log as it grows and sums up the whole run.

    ``new`` yields the events written since the last call. An incomplete last line is left for the next call; a damaged
    line, or one of another version, is skipped. When a session resumes from an earlier step, later steps are dropped.
    When another file replaces the log, reading starts again.

    Without ``rollouts`` the long lines (rollouts, prompts) are skipped without decoding.
    """

    def __init__(self, path: str | Path, *, rollouts: bool = True) -> None:
        self.path = Path(path)
        self._skipped = () if rollouts else ("rollout", "prompt", "layers")
        self._offset, self._inode, self._warned = 0, -1, False
        self._start()

    @classmethod
    def read(cls, path: str | Path) -> "LogReader":
        """Read everything but the rollouts; an absent file is an empty log."""
        reader = cls(path, rollouts=False)
        for _ in reader.new():
            pass
        return reader

    def _start(self) -> None:
        self.run = RunEvent()
        self.steps: list[StepReport] = []
        self.evals: list[EvalEvent] = []
        self._usage: list[Mapping[str, Mapping[str, float]]] = []  # of each session
        self._spans: list[list[float]] = []  # start and last event of each session
        self._prompts: dict[tuple[int, str], PromptEvent] = {}  # by step and problem
        self._pending: list[RolloutEvent] = []
        self._system = ""

    @property
    def usage(self) -> dict[str, dict[str, float]]:
        """Requests, tokens and cost of each model role, summed over all sessions."""
        total: dict[str, Counter[str]] = {}
        for session in self._usage:
            for role, counts in session.items():
                total.setdefault(role, Counter()).update(counts)
        return {role: dict(counts) for role, counts in total.items()}

    @property
    def seconds(self) -> float:
        """Duration of all sessions, each from its start to its last event."""
        return sum(last - first for first, last in self._spans)

    def new(self) -> Iterator[Event]:
        if not self.path.exists():
            return
        with open(self.path, "rb") as file:
            status = os.fstat(file.fileno())
            if status.st_ino != self._inode or status.st_size < self._offset:
                self._offset, self._inode = 0, status.st_ino
                self._start()
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                if (event := self._decoded(line)) is not None:
                    self._add(event)
                    yield event

    def finished(self) -> Iterator[RunEvent | FinishedStep]:
        """Yield new sessions, and new steps with their rollouts."""
        for event in self.new():
            if isinstance(event, RunEvent):
                yield event
            elif isinstance(event, StepReport):
                rollouts = [rollout for rollout in self._pending if rollout.step == event.step]
                self._pending = [rollout for rollout in self._pending if rollout.step > event.step]
                asked = {(step, p): prompt for (step, p), prompt in self._prompts.items() if step in (0, event.step)}
                prompts = {problem: asked[step, problem] for step, problem in sorted(asked)}
                yield FinishedStep(self.run, event, rollouts, prompts, self._system)
            elif isinstance(event, RolloutEvent):
                self._pending.append(event)

    def _decoded(self, line: bytes) -> Event | None:
        found = _KIND.search(line, 0, _HEAD)
        kind = found[1].decode() if found else ""
        if kind in self._skipped or not line.strip():
            return None
        try:
            fields = msgspec.json.decode(line)
            if kind == "rollout" and "problem" in fields:
                raise DataError(f"{self.path}: rollouts in the format of an earlier version; {_OLD}")
            if kind in _KINDS:
                nan = kind in ("step", "eval")  # their numbers may be NaN, which is null in JSON
                return msgspec.convert(measured(fields) if nan else fields, _KINDS[kind])
            if isinstance(fields, dict) and "kind" in fields:
                return None  # of another version
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
        if not self._warned:
            logger.warning("%s: skipped an unreadable line before byte %d, and any after it", self.path, self._offset)
            self._warned = True
        return None

    def _add(self, event: Event) -> None:
        if self._spans and not isinstance(event, RunEvent):
            self._spans[-1][1] = event.time
        match event:
            case RunEvent():
                self.run = event
                self._spans.append([event.time, event.time])
                self._usage.append({})
                self._pending.clear()
                self.steps = [one for one in self.steps if one.step <= event.kept]
                self.evals = [one for one in self.evals if one.step <= event.kept]
            case StepReport():
                self.steps.append(event)
            case EvalEvent():
                self.evals.append(event)
            case UsageEvent():
                self._usage[-1:] = [event.models]
            case LayersEvent():
                self._system = event.layer1
            case PromptEvent():
                self._prompts.pop((event.step, event.problem), None)
                self._prompts[event.step, event.problem] = event
                if len(self._prompts) > _PROMPTS:
                    del self._prompts[next(iter(self._prompts))]


def is_log(path: Path) -> bool:
    """Tell whether one of the file's first lines is an event, or no line is complete yet."""
    with open(path, "rb") as file:
        *lines, rest = file.read(1_000_000).split(b"\n")
    return any(_KIND.search(line, 0, _HEAD) for line in lines) or (not lines and rest[:1] in (b"", b"{"))


def find_log(config: Config, run: str | None, *, newest: bool = False) -> Path:
    """Find the log of ``run``: a file, a run's name or ``MODEL/NAME``. The default is the configured run, or with
    ``newest`` the log written last.

    Raises ``ConfigError``, with the names of existing runs.
    """
    folder = config.output.log_dir
    known = sorted(folder.glob("*/*.jsonl"), key=lambda path: path.stat().st_mtime, reverse=True)
    names = [f"{path.parent.name}/{path.stem}" for path in known]
    file = run is not None and Path(run).is_file()
    if run is not None and file and is_log(Path(run)):
        return Path(run)
    found = known[:1]
    if run is not None or not newest:
        run = run or f"{config.base_model.key}/{config.output.run_name}"
        found = [path for path, name in zip(known, names, strict=True) if f"/{name}".endswith(f"/{run}")]
    if len(found) != 1:
        missing = "the file is not the log of a run" if file else f"no such log and no such run in {folder}"
        problem = "several models have such a run" if found else missing
        raise ConfigError(f"run {run or 'newest'!r}: {problem}; runs: {', '.join(names[:10]) or 'none yet, train one'}")
    return found[0]


def measured(value: Any) -> Any:
    """Return ``value`` with NaN for null."""
    if isinstance(value, dict):
        return {name: measured(item) for name, item in value.items()}
    return math.nan if value is None else value


_KINDS: Mapping[str, type[Event]] = {str(of.__struct_config__.tag): of for of in Event.__subclasses__()}


def json_data(value: Any, longest: int | None = None) -> Any:
    """Convert ``value`` to JSON data; unknown types to ``str``.

    With ``longest``, texts are cut in the middle to that many characters, and lists to a tenth as many items, except
    calls and exchanges, whose figures count. Fields of dataclasses that have their default are left out.
    """
    if isinstance(value, str):
        value = value if longest is None else cut(value, longest)
        # A lone surrogate cannot be written as UTF-8.
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):
        return value if abs(value) < 2**63 else str(value)
    if is_dataclass(value) and not isinstance(value, type):
        # Text and workflow, the part that readers need most, are hardly cut.
        most = _LONGEST[-1] if longest and isinstance(value, Rollout | Completion) else longest
        own = {f.name: item for f in fields_of(value) if (item := getattr(value, f.name)) != f.default}
        return {name: json_data(item, most if isinstance(item, str) else longest) for name, item in own.items()}
    items = sys.maxsize if longest is None else max(_FEWEST, longest // 10)
    if isinstance(value, Mapping):
        return {json_data(str(key)[:longest]): json_data(item, longest) for key, item in islice(value.items(), items)}
    if isinstance(value, (list, tuple, set, frozenset)):
        kept = list(value)
        counted = bool(kept) and isinstance(kept[0], OperatorCall | Exchange)
        kept = kept if counted or len(kept) <= items else [*kept[: items // 2], *kept[-(items // 2) :]]
        return [json_data(item, longest) for item in kept]
    return json_data(str(value), longest)

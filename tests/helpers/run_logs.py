"""Event logs of training runs, written by the trainer's own writer from hand-made rollouts."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from helpers.rollouts import problem, rollout
from llm_as_judge.events import Event, LayersEvent, PromptEvent, RolloutEvent, RunEvent, UsageEvent
from llm_as_judge.rl.credit import credit
from llm_as_judge.rl.report import log_step, step_report
from llm_as_judge.rl.update import UpdateReport
from llm_as_judge.runlog import EventLog, LogReader
from llm_as_judge.types import Exchange, Execution, Group, OperatorCall, Problem, Question, Reference, Reward, Rollout

CONFIG = "model:\n  model_name: nano\nexecutor:\n  model: nano-executor\ntraining:\n  max_steps: 3\n"
#: Hostile texts of a model or a data set, which must be shown unchanged.
SCRIPT = "<script>document.title = 'owned'</script><img src=x onerror=\"document.title = 'owned'\">"
RIGHT_TO_LEFT = "\u202egnp.exe \u0627\u0644\u0639\u0631\u0628\u064a\u0629"
HOSTILE = f"{SCRIPT} {RIGHT_TO_LEFT} NUL[\x00] half[\ud800] </style></textarea><!-- ]]> `${{1}}` {{{{x}}}}"


def told(
    of: Problem, correct: bool | None, *, shape: str = "answer", reply: str = "", text: str | None = None
) -> Rollout:
    """A rollout with one operator call of one exchange; a wrong one was judged by a model."""
    made = rollout(of, correct, shape=shape, text=text, answer=reply or "an answer")
    exchange = Exchange(f"Asked: {of.question.text}", reply or f"Reply to {of.question.id}", "stop", 90, 10, 0.5, 0.2)
    call = OperatorCall("AnswerGenerate", {"input": of.question.text}, {"answer": reply}, (exchange,), 0.3)
    terms = {"correctness": 10.0 if correct else -5.0, "format": 7.5}
    asked = Exchange(f"Is it right? {reply or 'an answer'}", f"No. {reply}", "stop", 40, 2, 0.25, 0.1)
    return replace(
        made,
        verdict=replace(made.verdict, tier="llm", exchanges=(asked,)) if correct is False else made.verdict,
        execution=replace(made.execution, calls=(call,), seconds=0.5),
        reward=Reward(None if correct is None else 9.25 if correct else -2.0, {} if correct is None else terms),
    )


def write(path: Path, *events: Event) -> Path:
    with EventLog(path) as log:
        for event in events:
            log.log(event)
    return path


def begin(log: EventLog, resumed_from: str | None = None) -> None:
    log.log(RunEvent(id="20260101-000000-abcdef", config=CONFIG, sandbox="strict", resumed_from=resumed_from))
    log.log(LayersEvent(layer1="Write a workflow.", layer2={}))


def add_step(log: EventLog, step: int, groups: Sequence[Group], **report: float) -> None:
    """Log a step as the trainer does: prompts, rollouts and metrics."""
    for group in groups:
        question = group.problem.question
        asked = f"Asked: {question.text}"
        log.log(PromptEvent(step=step, problem=question.id, question=question.statement, user=asked, examples=0))
    credited = credit(groups, "none", None)
    update = UpdateReport(*[0.25] * len(UpdateReport.__dataclass_fields__))
    made = step_report(step, credited, update, learning_rate=1e-3, seconds={"generate": 1.0, "update": 2.0})
    log_step(log.log, credited, msgspec.structs.replace(made, **report))
    log.log(UsageEvent(step=step, models={"executor": {"calls": 1, "cost": 0.5 * step}}))


def log_steps(path: Path, *steps: Sequence[Group], first: int = 1, resumed_from: str | None = None) -> Path:
    """A session with these steps, each a batch of groups."""
    with EventLog(path) as log:
        begin(log, resumed_from)
        for step, groups in enumerate(steps, first):
            add_step(log, step, groups)
    return path


def group(id: str, *verdicts: bool | None, domain: str = "math") -> Group:
    of = problem(f"{domain}/{id}", domain, "gsm8k")  # type: ignore[arg-type]
    return Group(of, tuple(told(of, verdict) for verdict in verdicts))


def hostile_group() -> Group:
    """All texts of models and data are hostile; one line is a megabyte long."""
    question = Question("hostile", f"Problem {HOSTILE}", "qa", dataset="custom")
    of = Problem(question, Reference(answers=(f"Reference {HOSTILE}",)))
    text = f"# Workflow {HOSTILE}\nclass Workflow: pass\n"
    long = f"Reply {HOSTILE} " + "x" * 1_000_000
    raised = told(of, False, text=text, reply=f"Reply {HOSTILE}")
    raised = replace(raised, execution=Execution("raised", None, raised.execution.calls, f"Error {HOSTILE}"))
    return Group(of, (told(of, True, text=text, reply=long), raised))


def write_run(path: Path, steps: int = 2) -> Path:
    """A run of some steps with a right, a wrong and an unscored rollout in each."""
    right, rest = group("q", True, True, domain="code"), (True, False, None)
    return log_steps(path, *([group(f"p{step}", *rest), right] for step in range(1, steps + 1)))


def read_rollouts(path: str | Path) -> list[RolloutEvent]:
    return [event for event in LogReader(path).new() if isinstance(event, RolloutEvent)]


def read_events(path: str | Path) -> Iterator[dict[str, Any]]:
    """The raw JSON objects of a log, oldest first; unreadable lines are skipped."""
    if not Path(path).exists():
        return
    with open(path, "rb") as file:
        for line in file:
            try:
                event = msgspec.json.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
            if isinstance(event, dict) and "kind" in event:
                yield event

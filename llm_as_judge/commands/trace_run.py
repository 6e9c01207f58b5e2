"""``llm-as-judge trace``: a run's rollouts to an OpenTelemetry collector, once or as the run grows."""

from __future__ import annotations

from dataclasses import dataclass

from llm_as_judge.commands.watch_run import find_log
from llm_as_judge.config.schema import Config
from llm_as_judge.evaluation.logged import Begun, StepReader
from llm_as_judge.views.spans import Spans


@dataclass
class Traced:
    """``update`` sends the steps that are new."""

    reader: StepReader
    spans: Spans

    def update(self) -> int:
        """How many rollouts were sent; raises ``InfrastructureError`` where nobody takes them."""
        return sum(self.spans.send(found) for found in self.reader.new() if not isinstance(found, Begun))


def trace(config: Config, run: str | None = None, endpoint: str | None = None) -> Traced:
    """Of ``run``, by default the one that wrote last; raises ``ConfigError`` where there is none."""
    return Traced(StepReader(find_log(config, run, newest=True)), Spans(endpoint))

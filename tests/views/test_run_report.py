"""A run's report: its contents, and what a real browser shows of it offline."""

import base64
import json
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.cli import CommandLine
from helpers.run_logs import RIGHT_TO_LEFT, SCRIPT, add_step, begin, group, hostile_group, log_steps, told, write_run

from llm_as_judge.evaluation.analysis import analyze_log, read_story
from llm_as_judge.events import EvalEvent, RunEvent, StepReport
from llm_as_judge.files import json_text
from llm_as_judge.runlog import EventLog
from llm_as_judge.types import Execution, Group

pytest.importorskip("jinja2", reason="Jinja and Pygments are an extra: pip install 'llm-as-judge[report]'")

from llm_as_judge.views.charts import plots, running
from llm_as_judge.views.report import code, report_page, shown

NONE = Path("none.json")


def planned(id: str, shape: str, correct: bool = True) -> Group:
    """A group of one rollout of a shape of the catalogue."""
    of = group(id).problem
    return Group(of, (told(of, correct, shape=shape),))


def test_a_story_has_shapes_costs_and_the_analysis_of_the_steps_that_count(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with EventLog(path) as log:
        begin(log)
        for step in range(1, 21):
            add_step(log, step, [planned("a", "answer" if step <= 2 else "program")])
            log.log(EvalEvent(step=step, scores={"overall": step / 40}))
    story = read_story(path, NONE)
    assert story.before == {"math": {"AnswerGenerate": 2}} and story.after == {"math": {"Programmer": 2}}
    assert len(story.log.steps) == len(story.log.evals) == 20 and story.results == {}
    again = [planned("a", "answer"), planned("b", "answer_vote", correct=False)]
    log_steps(path, again, first=2, resumed_from="checkpoints/nano/run/step_1")
    story = read_story(path, NONE)
    assert json_text(story.analysis) == json_text(analyze_log(path)) and story.analysis.total.rollouts == 3
    assert [step.step for step in story.log.steps] == [1, 2] and [event.step for event in story.log.evals] == [1]
    assert story.costs == [0.5, 1.5] and {shown.step for shown in (*story.best, *story.worst)} == {2}


def test_best_and_worst_are_by_reward_and_of_different_kinds(tmp_path: Path) -> None:
    of = group("a").problem
    best = replace(told(of, True, shape="program"), reward=replace(told(of, True).reward, total=9.9))
    refused = Execution("invalid", None, error="no class")
    invalid = [replace(told(of, False, text=f"x = {n}"), execution=refused) for n in (1, 2)]
    groups = [Group(of, (told(of, True), told(of, True), best, *invalid)), group("b", None, False)]
    story = read_story(log_steps(tmp_path / "run.jsonl", groups), NONE)
    assert story.best[0].reward == 9.9 and story.best[0].rollout.execution.shape == "Programmer"
    assert [shown.rollout.execution.shape for shown in story.best].count("AnswerGenerate") == 1
    assert {shown.rollout.execution.outcome for shown in story.worst} >= {"invalid", "finished"}
    assert all(s.question == f"Question {s.rollout.problem.question.id}?" for s in story.worst)


def test_text_is_shown_as_it_is_except_for_invisible_characters() -> None:
    assert shown("a\x00b\u202ec\n\td") == "a\u27e8U+0000\u27e9b\u27e8U+202E\u27e9c\n\td"
    assert len(shown("x" * 1_000_000)) < 4_100 and "996060 characters cut" in shown("x" * 1_000_000)
    assert "<script>" not in code(f"x = 1  # {SCRIPT}") and "&lt;script&gt;" in code(f"x = 1  # {SCRIPT}")


def test_the_page_has_the_figures_of_the_run_and_no_scripts(tmp_path: Path) -> None:
    story = read_story(write_run(tmp_path / "nano/mine.jsonl"), NONE)
    drawn = list(plots(story))
    assert [plot.heading for plot in drawn] == [
        "Reward", "Accuracy", "Valid workflows and contrast", "KL and entropy", "Reward terms", "Cost",
        "Executor tokens", "Time", "Workflow shapes, before and after",
    ]  # fmt: skip
    images = [base64.b64decode(plot.image.partition(",")[2]).decode() for plot in drawn]
    assert all("<svg" in image for image in images) and ">AnswerGenerate<" in images[-1]
    assert repr(running([math.nan, 1.0, 3.0, math.nan])) == "[nan, 1.0, 2.0, 2.0]"
    page = report_page(story)
    shown = re.sub(r"<style.*?</style>|<[^>]+>", " ", page, flags=re.DOTALL)
    for seen in (
        "mine", "10 rollouts", "2 rollouts unscored", "Question math/p2?", "Reply to math/p2", "Is it right? ",
    ):  # fmt: skip
        assert seen in shown, seen
    assert "<script" not in page and not re.search(r"(?:src|href)\s*=\s*[\"'](?!#|data:image/svg)", page)


def test_the_page_has_the_results_of_the_run(tmp_path: Path) -> None:
    path, results = write_run(tmp_path / "nano/mine.jsonl"), tmp_path / "mine.json"
    scores = {"overall": 0.25, "math": 0.5, "valid_rate": 1.0, "executor_tokens": 123.4}
    interval = {"overall": [0.2, 0.31], "math": [0.4, 0.6], "valid_rate": [0.9, 1.0]}
    saved: dict[str, Any] = {
        "run_id": "20260101-000000-abcdef", "before": {**scores, "interval": interval},
        "baselines": {"single <b>call</b>": {"overall": None, "interval": {}, "executor_tokens": None}},
        "workflows": {"vote": {"math": 0.812, "qa": None}, "answer": {"math": 0.5}}, "learned": {"math": "vote"},
        "judge": {"agreement": 0.915, "pairs": 47, "false_accepts": 3, "false_rejects": 1, "abstained": 2},
    }  # fmt: skip
    results.write_text(json.dumps(saved))
    page = report_page(read_story(path, results))
    rows = [re.sub(r"<[^>]+>", "|", row).strip("|\n") for row in re.findall(r"<tr>.*?</tr>", page)]
    for row in (
        "untrained policy||25.0 [20.0, 31.0]||50.0 [40.0, 60.0]||-||-||100.0 [90.0, 100.0]||123",
        "single &lt;b&gt;call&lt;/b&gt;||-||-||-||-||-||-", "vote||81*||-||-", "answer||50||-||-",
    ):  # fmt: skip
        assert row in rows, (row, rows)
    assert "91.5 % of 47 answers: 3 false accepts, 1 false rejects, 2 abstained" in page
    results.write_text(json.dumps({**saved, "run_id": "another"}))
    assert read_story(path, results).results == {}, "of another run of that name"
    assert "Held-out problems" not in report_page(read_story(path, NONE)), "not measured"


def test_the_command_writes_the_page_next_to_the_log(here: Path, cli: CommandLine) -> None:
    write_run(Path("logs/nano/mine.jsonl"))
    assert "logs/nano/mine.html" in cli("report") and Path("logs/nano/mine.html").is_file()
    log_steps(Path("logs/nano/empty.jsonl"))
    assert "no finished step yet" in cli.refused("report", "empty")


def test_the_page_is_drawn_offline_and_shows_hostile_text_as_text(tmp_path: Path) -> None:
    path = tmp_path / "nano/mine.jsonl"
    with EventLog(path) as log:
        begin(log)
        for step in range(1, 13):
            add_step(log, step, [group(f"p{step}", True, step > 6), hostile_group()], reward_mean=step / 2)
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright drives it: pip install playwright")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("no chromium on this machine: apt-get install chromium")
    file, said, asked = tmp_path / "report.html", list[str](), list[str]()
    file.write_text(report_page(read_story(path, NONE)), encoding="utf-8")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(60_000)
        page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: said.append(f"error: {error}"))
        page.on("request", lambda request: asked.append(request.url))
        page.context.set_offline(True)
        page.goto(file.as_uri())
        widths = page.eval_on_selector_all(".plots img", "all => all.map(one => one.naturalWidth)")
        assert len(widths) == 9 and all(width > 300 for width in widths)
        page.eval_on_selector_all("details", "all => all.forEach(one => one.open = true)")
        for seen in ("Problem", "# Workflow", "Reply", "Reference", "Error"):
            found = page.get_by_text(f"{seen} {SCRIPT}").first
            found.scroll_into_view_if_needed()
            assert found.is_visible()
        shown = page.inner_text("body")
        assert RIGHT_TO_LEFT not in shown
        assert "\u27e8U+202E\u27e9gnp.exe" in shown and "NUL[\u27e8U+0000\u27e9]" in shown
        assert page.title() == "mine" and page.evaluate("document.querySelector('img[src=x]')") is None
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280, "wider than the window"
        assert said == []
        assert [url for url in asked if not url.startswith("data:")] == [file.as_uri()]
        browser.close()


def test_the_duration_is_that_of_all_sessions_without_the_pause_between(tmp_path: Path) -> None:
    with EventLog(tmp_path / "run.jsonl") as log:
        for session, begun in enumerate((100.0, 5000.0)):
            log.log(RunEvent(time=begun, resumed_from="step_1" if session else None))
            log.log(StepReport(time=begun + 60, step=session + 1))
    assert "0:02:00" in report_page(read_story(tmp_path / "run.jsonl", NONE))

"""Model card of an exported policy, in the format of the Hugging Face hub; only known facts."""

from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

import yaml

from llm_as_judge.config.schema import Config
from llm_as_judge.types import in_order
from llm_as_judge.views.terminal import markdown, recorded


def model_card(
    config: Config, name: str, base: str, dtype: str, step: int, training: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]], mix: Mapping[str, Any], note: str, *, on_hub: bool, merged: bool,
) -> str:  # fmt: skip
    """Write a card; ``training`` is the run's results file, ``rows`` are those of evaluations, ``mix`` are line counts
    of ``data process``; all are empty if unknown for this adapter. ``note`` is about a merged model's precision.
    """
    reward = config.reward
    about = {"library_name": "peft", "pipeline_tag": "text-generation", "tags": ["llm-as-judge", "grpo"]}
    served, rank = base if on_hub else "BASE_MODEL", config.model.lora_rank
    use = f"vllm serve {served} --enable-lora --max-lora-rank {rank} --lora-modules policy=FOLDER\n"
    use += f"llm-as-judge solve --model {base} --checkpoint FOLDER PROBLEM"
    if merged:
        about["library_name"] = "transformers"
        use = "vllm serve FOLDER\nllm-as-judge solve --model FOLDER --untrained PROBLEM"
    if on_hub:
        about |= {"base_model": base, "base_model_relation": "merge" if merged else "adapter"}
    weights = {**reward.reward_weights, **{name.rpartition("/")[2]: w for name, w in reward.functions.items()}}
    shares = ", ".join(f"{domain} {share:g}" for domain, share in config.data.domain_ratios.items())
    file = config.data.train_dataset
    source = f"{f'`{file.name}`' if file else 'generated problems of the embedded world'}; shares in a batch: {shares}."
    settings = {f"training.{name}": value for name, value in config.training}
    settings |= {f"model.{name}": f"`{value}`" for name, value in config.model if name.startswith("lora")}
    template = files(__package__).joinpath("card.md").read_text(encoding="utf-8")
    return template.format(
        about=yaml.safe_dump(about, sort_keys=False),
        name=name,
        step=step,
        base=f"[{base}](https://huggingface.co/{base})" if on_hub else base,
        dtype=dtype,
        use=use,
        note=note,
        data=f"{source}\n\n{markdown(('dataset', 'training lines'), mix.items())}" if mix else source,
        weights=", ".join(f"{term} {weight:g}" for term, weight in weights.items()),
        judge=(config.judge.own or config.judge.mode) + f", {config.judge.model}" * config.judge.asks_model,
        executor=config.executor_models,
        settings=markdown(("setting", "value"), settings.items()),
        scores="\n\n".join(_scores(config, training, rows)) or "No scores are recorded for this adapter.",
    )


def _scores(config: Config, training: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    if training:
        before, after = training["before"], training["after"]
        yield f"Percent [95 % interval] on {after['problems']} held-out problems, with {config.executor_models}:"
        names = ("overall", *in_order(d for d in config.data.domain_ratios if d in after), "valid_rate")
        yield markdown(("", "before", "after training"), ((n, recorded(before, n), recorded(after, n)) for n in names))
    if rows:
        cells = (
            (row["dataset"], name, recorded(official, name), official["problems"][name], row["executor"])
            for row in rows
            for official in row["metrics"]["official"].values()
            for name in official["interval"]
        )
        yield markdown(("dataset", "metric", "percent [95 % interval]", "problems", "executor"), cells)

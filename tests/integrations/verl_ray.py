"""verl's own reward workers in a local Ray, run by ``test_verl.py`` in verl's environment; one worker is killed.

    python verl_ray.py PARQUET CONFIG TOKENIZER OVERRIDE...

The last line is JSON: the scores, the error of a killed worker's batch, and the scores after it.
"""

import json
import os
import signal
import sys
from typing import Any

import numpy as np
import psutil
import pyarrow.parquet as pq
import ray
import torch
from omegaconf import OmegaConf
from transformers import PreTrainedTokenizerFast
from verl import DataProto
from verl.experimental.reward_loop.reward_loop import RewardLoopManager

TEXTS = json.loads(os.environ["WORKFLOWS"])


def settings(config: str, tokenizer: str, overrides: list[str]) -> Any:
    function = {
        "path": "pkg://llm_as_judge.integrations.verl",
        "name": "compute_score",
        "reward_kwargs": {"config": config, "overrides": overrides},
    }
    reward = {
        "num_workers": 2, "custom_reward_function": function, "reward_manager": {"source": "register", "name": "naive"},
        "reward_model": {"enable": False},
    }  # fmt: skip
    model = {"tokenizer_path": tokenizer, "path": tokenizer}
    return OmegaConf.create({"reward": reward, "actor_rollout_ref": {"model": model}})


def batch(parquet: str, tokenizer: str) -> DataProto:
    """Each row with each of the texts, in the form of verl's rollouts."""
    rows = [row for row in pq.read_table(parquet).to_pylist() for _ in TEXTS]
    tok = PreTrainedTokenizerFast.from_pretrained(tokenizer)
    answers = [tok.encode(text, add_special_tokens=False) for text in TEXTS] * (len(rows) // len(TEXTS))
    longest = max(map(len, answers))
    responses = torch.zeros(len(rows), longest, dtype=torch.long)
    mask = torch.zeros(len(rows), 4 + longest, dtype=torch.long)
    mask[:, :4] = 1
    for i, ids in enumerate(answers):
        responses[i, : len(ids)] = torch.tensor(ids)
        mask[i, 4 : 4 + len(ids)] = 1
    prompts = torch.ones(len(rows), 4, dtype=torch.long)
    columns = {
        name: np.array([row[name] for row in rows], dtype=object)
        for name in ("data_source", "reward_model", "extra_info")
    }
    return DataProto.from_dict({"prompts": prompts, "responses": responses, "attention_mask": mask}, columns)


def scores(manager: RewardLoopManager, data: DataProto) -> dict[str, Any]:
    found = manager.compute_rm_score(data)
    columns = {name: [str(v) for v in found.non_tensor_batch[name]] for name in ("acc", "outcome", "correctness")}
    return {"score": found.batch["rm_scores"].sum(-1).tolist(), **columns}


def main() -> None:
    parquet, config, tokenizer, *overrides = sys.argv[1:]
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _temp_dir=os.environ["RAY_FOLDER"])
    found: dict[str, Any] = {}
    try:
        data = batch(parquet, tokenizer)
        manager = RewardLoopManager(settings(config, tokenizer, overrides))
        found["before"] = scores(manager, data)
        victim = manager.reward_loop_workers[0]
        pid = ray.get(victim.__ray_call__.remote(lambda worker: os.getpid()))
        below = psutil.Process(pid).children(recursive=True)
        found["below"] = len(below)
        os.kill(pid, signal.SIGKILL)
        try:
            found["killed"] = scores(manager, data)
        except ray.exceptions.RayActorError as error:
            found["killed"] = type(error).__name__
        found["left"] = len(psutil.wait_procs(below, timeout=10)[1])
        manager.reward_loop_workers.remove(victim)
        found["after"] = scores(manager, data)
    finally:
        ray.shutdown()
    print(json.dumps(found))


if __name__ == "__main__":
    main()

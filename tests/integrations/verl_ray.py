"""verl's own agent-loop workers in a local Ray, run by ``test_verl.py`` in verl's environment; some are killed.

    python verl_ray.py FOLDER MODEL

The policy's server is a stand-in that verl's own client and load balancer ask. The last line is JSON.
"""

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow.parquet as pq
import ray
import torch
import verl.trainer
from omegaconf import OmegaConf
from transformers import PreTrainedTokenizerFast
from verl import DataProto
from verl.experimental.agent_loop import AgentLoopManager
from verl.trainer.ppo.core_algos import get_adv_estimator_fn
from verl.workers.rollout.llm_server import LLMServerClient
from verl.workers.rollout.replica import TokenOutput
from verl.workers.rollout.router import GlobalRequestLoadBalancer

TEXTS = json.loads(os.environ["WORKFLOWS"])
FOLDER, MODEL = Path(sys.argv[1]), sys.argv[2]
ROOM = 200


@ray.remote
class Server:
    """Replies with the text of the request's place in the batch, and to a repair turn with the first text."""

    def __init__(self) -> None:
        self.tokenizer = PreTrainedTokenizerFast.from_pretrained(MODEL)

    async def generate(
        self, prompt_ids: list[int], sampling_params: dict[str, Any], priority: int = 0, **_: Any
    ) -> TokenOutput:
        again = TEXTS[2] in self.tokenizer.decode(prompt_ids)
        text = TEXTS[0 if again else priority % len(TEXTS)]
        ids = [*self.tokenizer.encode(text, add_special_tokens=False), self.tokenizer.eos_token_id]
        ids = ids[: sampling_params["max_tokens"]]
        return TokenOutput(token_ids=ids, log_probs=[-1.0] * len(ids), stop_reason="completed")


def settings() -> Any:
    """verl's own defaults, for a policy of a few tokens on the CPU."""
    config = OmegaConf.load(Path(verl.trainer.__file__).parent / "config/_generated_ppo_trainer.yaml")
    model = FOLDER / "model"
    if not model.exists():  # verl asks of every qwen2 that its turns end as Qwen's
        shutil.copytree(MODEL, model, ignore=shutil.ignore_patterns("*.safetensors"))
        described = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps({**described, "model_type": "llama"}))
    config.actor_rollout_ref.model.path = str(model)
    rollout = {"name": "vllm", "prompt_length": 2000, "response_length": ROOM, "calculate_log_probs": True}
    agent = {"num_workers": 2, "agent_loop_config_path": str(FOLDER / "agent.yaml")}
    return OmegaConf.merge(config, {"actor_rollout_ref": {"rollout": {**rollout, "agent": agent}}})


def rollouts(manager: AgentLoopManager) -> DataProto:
    """Each row with each of the texts."""
    rows = [row for row in pq.read_table(FOLDER / "train.parquet").to_pylist() for _ in TEXTS]
    columns = {"raw_prompt": [row["prompt"] for row in rows], "uid": [row["extra_info"]["id"] for row in rows]}
    columns |= {name: [row[name] for row in rows] for name in ("agent_name", "extra_info")}
    arrays = {name: np.empty(len(rows), dtype=object) for name in columns}
    for name, values in columns.items():
        arrays[name][:] = values
    return manager.generate_sequences(DataProto.from_dict({"dummy": torch.zeros(len(rows), 1)}, arrays))


def told(found: DataProto) -> dict[str, Any]:
    tokenizer, batch = PreTrainedTokenizerFast.from_pretrained(MODEL), found.batch
    columns = {
        name: [str(value) for value in found.non_tensor_batch[name]]
        for name in ("acc", "outcome", "finish_reason", "executor_tokens", "correctness", "__num_turns__")
    }
    shown = batch["attention_mask"][:, -ROOM:].bool()
    given = shown & ~batch["response_mask"].bool()
    config = OmegaConf.create({"norm_adv_by_std_in_grpo": True})
    advantages, _ = get_adv_estimator_fn("grpo_scored")(
        batch["rm_scores"], batch["response_mask"], index=found.non_tensor_batch["uid"], config=config
    )
    rows = zip(batch["responses"], batch["response_mask"].bool(), given, strict=True)
    texts = [(tokenizer.decode(row[trained]), tokenizer.decode(row[rest])) for row, trained, rest in rows]
    return {
        **columns,
        "score": batch["rm_scores"].sum(-1).tolist(),
        "trained": [text for text, _ in texts],
        "given": [text for _, text in texts],
        "logprobs": sorted({*batch["rollout_log_probs"][batch["response_mask"].bool()].tolist()}),
        "advantages": advantages[:, 0].tolist(),
        "actors": [name for name in ray.util.list_named_actors() if name.startswith("llm_as_judge ")],
    }


def pid_of(actor: Any) -> int:
    return ray.get(actor.__ray_call__.remote(lambda _: os.getpid()))


def main() -> None:
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, _temp_dir=os.environ["RAY_FOLDER"])
    found: dict[str, Any] = {}
    try:
        balancer = ray.remote(GlobalRequestLoadBalancer).remote({"one": Server.remote()})
        manager = AgentLoopManager.create(settings(), LLMServerClient(settings(), balancer))
        found["before"] = told(rollouts(manager))
        pid = pid_of(ray.get_actor(*found["before"]["actors"]))
        below = psutil.Process(pid).children(recursive=True)
        os.kill(pid, signal.SIGKILL)
        found["after"] = told(rollouts(manager))
        found["below"], found["left"] = len(below), len(psutil.wait_procs(below, timeout=10)[1])
        os.kill(pid_of(manager.agent_loop_workers[0]), signal.SIGKILL)
        try:
            rollouts(manager)
        except ray.exceptions.RayActorError as error:
            found["killed"] = type(error).__name__
    finally:
        ray.shutdown()
    print(json.dumps(found))


if __name__ == "__main__":
    main()

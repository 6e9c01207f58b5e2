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
    model = shutil.copytree(MODEL, FOLDER / "model", ignore=shutil.ignore_patterns("*.safetensors"))
    described = (model / "config.json").read_text()  # verl asks of every Qwen that its turns end as Qwen's
    (model / "config.json").write_text(described.replace('"qwen3"', '"llama"'))
    rollout = {"name": "vllm", "prompt_length": 2000, "response_length": ROOM, "calculate_log_probs": True}
    agent = {"num_workers": 2, "agent_loop_config_path": str(FOLDER / "agent.yaml")}
    ours = {"model": {"path": str(model)}, "rollout": {**rollout, "agent": agent}}
    return OmegaConf.merge(config, {"actor_rollout_ref": ours})


def rollouts(manager: AgentLoopManager) -> dict[str, Any]:
    """What became of each row with each of the texts."""
    frame = pq.read_table(FOLDER / "train.parquet").to_pandas().rename(columns={"prompt": "raw_prompt"})
    frame = frame.loc[frame.index.repeat(len(TEXTS))].assign(uid=lambda rows: rows["extra_info"].str["id"])
    columns = {name: frame[name].to_numpy() for name in ("raw_prompt", "uid", "agent_name", "extra_info")}
    found = manager.generate_sequences(DataProto.from_dict({"dummy": torch.zeros(len(frame), 1)}, columns))
    names = ("acc", "outcome", "finish_reason", "executor_tokens", "correctness", "__num_turns__")
    batch, tokenizer = found.batch, PreTrainedTokenizerFast.from_pretrained(MODEL)
    trained, config = batch["response_mask"].bool(), OmegaConf.create({"norm_adv_by_std_in_grpo": True})
    others = batch["attention_mask"][:, -ROOM:].bool() & ~trained
    advantages, _ = get_adv_estimator_fn("grpo_scored")(batch["rm_scores"], trained, columns["uid"], config)
    return {
        **{name: [str(value) for value in found.non_tensor_batch[name]] for name in names},
        "score": batch["rm_scores"].sum(-1).tolist(),
        "trained": [tokenizer.decode(row[kept]) for row, kept in zip(batch["responses"], trained, strict=True)],
        "given": [tokenizer.decode(row[kept]) for row, kept in zip(batch["responses"], others, strict=True)],
        "logprobs": sorted({*batch["rollout_log_probs"][trained].tolist()}),
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
        manager = AgentLoopManager.create(config := settings(), LLMServerClient(config, balancer))
        found["before"] = rollouts(manager)
        pid = pid_of(ray.get_actor(*found["before"]["actors"]))
        below = psutil.Process(pid).children(recursive=True)
        os.kill(pid, signal.SIGKILL)
        found["after"] = rollouts(manager)
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

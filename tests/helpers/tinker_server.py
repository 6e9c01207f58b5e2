"""A small server of the Tinker API over our own policy, which sums or averages, clips or not, and fails when told."""

import io
import json
import tarfile
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch

from helpers.web import Handler, serving
from llm_as_judge.policy.local import LocalEngine
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.sampling import PLAIN, Sampling
from llm_as_judge.types import Completion


class Model:
    """A policy that is trained, with its optimiser."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.optimizer = torch.optim.AdamW(policy.trainable_parameters)

    def state(self) -> tuple[Any, ...]:
        weights = [p.detach().clone() for p in self.policy.trainable_parameters]
        return self.policy.config.lora_rank, weights, json_like(self.optimizer.state_dict())


def json_like(state: Any) -> Any:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


@dataclass
class World:
    """What outlives a restart are the ``saved`` states."""

    make: Callable[[int, int], Policy]  # by rank and seed
    name: str
    reduction: str = "sum"
    clips: bool = True
    archives: bool = True
    longest: int | None = None
    alpha: float = 32.0
    failing: dict[str, int] = field(default_factory=dict)  # requests of a kind that fail from now on
    asked: list[tuple[str, Any]] = field(default_factory=list)
    saved: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    models: dict[str, Model] = field(default_factory=dict)
    samplers: dict[str, tuple[Any, ...] | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lock, self._numbers, self._results, self._policies = threading.RLock(), count(1), dict[str, Any](), {}

    def policy(self, state: tuple[Any, ...] | None) -> tuple[Policy, Any]:
        rank = state[0] if state else 1
        if rank not in self._policies:
            self._policies[rank] = self.make(rank, 0)
        policy = self._policies[rank]
        return policy, state[1] if state else [p.detach().clone() for p in policy.trainable_parameters]

    def answer(self, kind: str, body: Any) -> Any:
        """The JSON of a request, of which most are answered later."""
        if kind in ("client/config", "client/dynamic_config"):
            return {"use_pyqwest_transport": False} if kind == "client/config" else {}
        if kind == "create_session":
            return {"session_id": f"session-{next(self._numbers)}"}
        if kind == "session_heartbeat":
            return {}
        if kind == "get_server_capabilities":
            return {"supported_models": [{"model_name": self.name, "max_context_length": self.longest}]}
        if kind == "weights_info":
            rank = self.saved[body["tinker_path"]][0]
            return {"base_model": self.name, "is_lora": True, "lora_rank": rank, "train_unembed": False}
        if kind == "create_sampling_session":
            name = f"sampler-{next(self._numbers)}"
            self.samplers[name] = self.saved[body["model_path"]] if body.get("model_path") else None
            return {"sampling_session_id": name}
        if kind == "retrieve_future":
            return self._results.pop(body["request_id"])
        request = f"request-{next(self._numbers)}"
        self.asked.append((kind, body))
        if self.failing.get(kind):
            self.failing[kind] -= 1
            self._results[request] = {"error": f"no {kind} today", "category": "server"}
        else:
            self._results[request] = getattr(self, kind)(body)
        return {"request_id": request}

    def create_model(self, body: Any) -> Any:
        name, lora = f"run-{next(self._numbers)}", body["lora_config"]
        self.models[name] = Model(self.make(lora["rank"], lora.get("seed") or 0))
        return {"model_id": name}

    def unload_model(self, body: Any) -> Any:
        return {"model_id": body["model_id"]}

    def load_weights(self, body: Any) -> Any:
        model, (_, weights, optimizer) = self.models[body["model_id"]], self.saved[body["path"]]
        with torch.no_grad():
            for own, value in zip(model.policy.trainable_parameters, weights, strict=True):
                own.copy_(value)
        if body["optimizer"]:
            model.optimizer.load_state_dict(torch.load(io.BytesIO(optimizer), weights_only=True))
        return {"path": body["path"]}

    def save_weights(self, body: Any) -> Any:
        path = f"tinker://{body['model_id']}/weights/{body['path']}"
        self.saved[path] = self.models[body["model_id"]].state()
        return {"path": path}

    def save_weights_for_sampler(self, body: Any) -> Any:
        state = self.models[body["model_id"]].state()
        if body.get("path"):
            path = f"tinker://{body['model_id']}/sampler_weights/{body['path']}"
            self.saved[path] = state
            return {"path": path}
        name = f"sampler-{next(self._numbers)}"
        self.samplers[name] = state
        return {"sampling_session_id": name}

    def asample(self, body: Any) -> Any:
        from tinker.proto import tinker_public_pb2 as wire

        policy, weights = self.policy(self.samplers[body["sampling_session_id"]])
        ids = [i for chunk in body["prompt"]["chunks"] for i in chunk["tokens"]]
        params, reply = body["sampling_params"], wire.SampleResponse()
        with policy.holding(weights):
            if body.get("prompt_logprobs"):
                row = Completion("", tuple(ids[:1]), tuple(ids[1:]), (), "stop")
                (known,) = policy.known_logprobs([row], PLAIN, "padded", 1 << 16)
                missing = [np.nan] if self.reduction == "sum" else []  # SkyRL leaves the first token out
                reply.prompt_logprobs = np.array([*missing, *known.tolist()], np.float32).tobytes()
            sampling = Sampling(params["temperature"], params["top_p"], max(0, params["top_k"]))
            found = LocalEngine(policy, policy.tokenizer).generate(
                [ids], body["num_samples"], sampling=sampling, max_new_tokens=params["max_tokens"],
                seed=params.get("seed") or 0,
            )[0]  # fmt: skip
        for one in found:
            reply.sequences.add(
                stop_reason=0 if one.finish_reason == "stop" else 1,
                tokens=np.array(one.token_ids, np.int32).tobytes(),
                logprobs=np.array(one.logprobs, np.float32).tobytes(),
            )
        return reply.SerializeToString()

    def forward_backward(self, body: Any) -> Any:
        from tinker.proto import tinker_public_pb2 as wire

        model, rows, inputs = self.models[body.model_id], [], []
        for datum in body.data:
            own = {
                name: torch.from_numpy(np.frombuffer(t.dense, np.int64 if t.dtype == 2 else np.float32).copy())
                for name, t in datum.loss_fn_inputs.items()
            }
            known = {"importance_sampling": {"logprobs", "advantages"}, "cross_entropy": {"weights"}}[body.loss_fn]
            allowed = known | {"target_tokens"} | ({"weights"} if self.reduction == "mean" else set())
            assert known <= set(own) <= allowed, f"{body.loss_fn} with {sorted(own)}"
            assert all(value.isfinite().all() for value in own.values()), "NaN was sent"
            ids = [int(i) for chunk in datum.model_input for i in np.frombuffer(chunk.encoded_text.tokens, np.int32)]
            rows.append(Completion("", tuple(ids[:1]), (*ids[1:], int(own["target_tokens"][-1])), (), "stop"))
            inputs.append(own)
        logprobs: dict[int, torch.Tensor] = {}
        with torch.set_grad_enabled(not body.forward_only):
            for members, scores in model.policy.micro_batches(rows, PLAIN, "padded", 1 << 16):
                loss = torch.zeros(())
                for i, own_logprobs in zip(members, scores.logprobs, strict=True):
                    own, found = inputs[i], own_logprobs[: len(rows[i].token_ids)]
                    if body.loss_fn == "cross_entropy":
                        each = -(own["weights"] * found)
                    else:
                        each = -(found - own["logprobs"]).exp() * own["advantages"]
                    counted = own.get("weights", torch.ones(len(found))).sum()
                    divisor = counted * len(rows) if self.reduction == "mean" else 1.0
                    loss = loss + each.sum() / divisor
                    logprobs[i] = found.detach()
                if not body.forward_only:
                    loss.backward()
        arrays = [logprobs[i].numpy().astype(np.float32) for i in range(len(rows))]
        offsets = np.cumsum([0, *(array.nbytes for array in arrays)]).astype(np.int64)
        reply = wire.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord")
        record = reply.loss_fn_outputs.add(num_datums=len(rows))
        record.fields["logprobs"].CopyFrom(
            wire.BatchedTensor(data=b"".join(a.tobytes() for a in arrays), offsets=offsets.tobytes(), dtype=1)
        )
        return reply.SerializeToString()

    def optim_step(self, body: Any) -> Any:
        model, adam = self.models[body["model_id"]], body["adam_params"]
        weights = model.policy.trainable_parameters
        limit = adam["grad_clip_norm"] if self.clips and adam["grad_clip_norm"] else float("inf")
        norm = float(torch.nn.utils.clip_grad_norm_(weights, limit))
        model.optimizer.param_groups[0].update(
            lr=adam["learning_rate"], betas=(adam["beta1"], adam["beta2"]), eps=adam["eps"],
            weight_decay=adam["weight_decay"],
        )  # fmt: skip
        model.optimizer.step()
        model.optimizer.zero_grad()
        return {"metrics": {"grad_norm:mean": norm}}

    def archive(self, path: str) -> bytes:
        """An adapter as SkyRL gives it, without target modules."""
        policy, weights = self.policy(self.saved[path])
        file = io.BytesIO()
        with tempfile.TemporaryDirectory() as made, policy.holding(weights):
            folder = Path(made)
            policy.save_adapter(folder)
            config = json.loads((folder / "adapter_config.json").read_text())
            config |= {"target_modules": None, "lora_alpha": self.alpha}
            (folder / "adapter_config.json").write_text(json.dumps(config))
            with tarfile.open(fileobj=file, mode="w:gz") as archive:
                for one in folder.iterdir():
                    archive.add(one, one.name)
        return file.getvalue()


@contextmanager
def tinker_server(world: World, port: int = 0) -> Iterator[str]:
    class Tinker(Handler):
        def respond(self, kind: str, body: Any) -> None:
            try:
                with world.lock:
                    reply = world.answer(kind, body)
            except Exception as error:
                return self.send(400, {"detail": repr(error)})
            if isinstance(reply, bytes):
                return self.send_bytes(reply, "application/x-protobuf")
            self.send(200, reply, **{"Content-Type": "application/json"})

        def send_bytes(self, data: bytes, kind: str) -> None:
            self.send_response(200)
            for name, value in (("Content-Type", kind), ("Content-Length", str(len(data)))):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            if "/checkpoints/" in self.path:
                run, _, name = self.path.removeprefix("/api/v1/training_runs/").partition("/checkpoints/")
                if not world.archives:
                    return self.send(404, {"detail": "no archives here"})
                return self.send_bytes(
                    world.archive(f"tinker://{run}/sampler_weights/{name.removesuffix('/archive')}"), "application/gzip"
                )
            self.respond(self.path.removeprefix("/api/v1/"), {})

        def do_POST(self) -> None:
            kind, raw = self.path.removeprefix("/api/v1/"), self.raw()
            if kind == "forward_backward":
                from tinker.proto import tinker_public_pb2 as wire

                message = wire.ForwardBackwardRequest()
                message.ParseFromString(raw)
                return self.respond(kind, message)
            self.respond(kind, json.loads(raw or b"{}"))

    with serving(Tinker, port) as address:
        yield address

"""Continuous batching of the nano LFM2 model on a CPU: rows join and leave at every token.

Reads a Hugging Face checkpoint folder and computes the same as ``Lfm2ForCausalLM`` (tested). It is written by hand
because a model this small spends most of its time in the framework, not in arithmetic. The caches of the latest prompts
are kept: the workflows of a group often send the same prompt, which then costs a copy.
"""

import json
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

#: Kernels sum in another order for fewer rows or for lengths that are not multiples of this. With both padded, the
#: logits of a request are the same bits in any batch, so its seed alone decides the reply.
_LEAST_ROWS = 4
_LENGTH_STEP = 16
#: Prompts whose caches are kept: at most 200 MB.
_KEPT_PROMPTS = 128


@dataclass(slots=True)
class NanoRequest:
    """One sequence to continue. ``output`` grows until ``finish_reason`` is set."""

    prompt: list[int]
    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    output: list[int] = field(default_factory=list)
    finish_reason: str = ""
    generator: torch.Generator | None = None
    done: "Future[NanoRequest]" = field(default_factory=Future, compare=False)


@dataclass(frozen=True, slots=True)
class _Layer:
    operator_norm: Tensor
    ffn_norm: Tensor
    w13: Tensor
    w2: Tensor
    attention: bool
    place: int  # index among the layers of its kind
    inner: Tensor  # qkv, or in_proj of the convolution
    out: Tensor
    own: Tensor  # norms of query and key [2, head], or taps of the convolution [d, its width]


#: All that the tokens after a prompt need: key and value [kv, length, head] of each layer with attention, taps
#: [reach, width] of each with a convolution, and the logits [V].
_Filled = tuple[list[tuple[Tensor, Tensor]], list[Tensor], Tensor]


class NanoEngine:
    """Slots ``0..n-1`` hold the active requests; one that ends is replaced by the last one."""

    def __init__(self, folder: Path, slots: int = 48, max_length: int = 1024) -> None:
        config = json.loads((folder / "config.json").read_text())
        w = {k: v.float() for k, v in load_file(folder / "model.safetensors").items()}
        self.width, self.heads = config["hidden_size"], config["num_attention_heads"]
        self.kv = config["num_key_value_heads"]
        self.head = self.width // self.heads
        self.eps, self.end = config["norm_eps"], config["eos_token_id"]
        self.slots, self.max_length = slots, max_length
        self.embedding, self.norm = w["model.embed_tokens.weight"], w["model.embedding_norm.weight"]
        kinds = [kind == "full_attention" for kind in config["layer_types"]]
        self.layers = [self._layer(w, i, kind, kinds[:i].count(kind)) for i, kind in enumerate(kinds)]
        theta = config.get("rope_parameters", {}).get("rope_theta", config.get("rope_theta", 1e6))
        angles = torch.arange(max_length)[:, None] * theta ** -(torch.arange(0, self.head, 2) / self.head)[None]
        self.cos, self.sin = torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)
        rows = max(slots, _LEAST_ROWS)
        shape = (kinds.count(True), rows, self.kv, max_length, self.head)
        self.keys, self.values = torch.zeros(shape), torch.zeros(shape)
        self.reach: int = config["conv_L_cache"] - 1  # past inputs that a convolution needs
        self.taps = torch.zeros(kinds.count(False), rows, self.reach, self.width)
        self._filled = lru_cache(_KEPT_PROMPTS)(self._forward)
        self.active: list[NanoRequest] = []
        self.last = torch.zeros(rows, dtype=torch.long)
        self.position = torch.zeros(rows, dtype=torch.long)

    @staticmethod
    def _layer(w: dict[str, Tensor], i: int, attention: bool, place: int) -> _Layer:
        p = f"model.layers.{i}."
        ffn = p + "feed_forward."
        w13 = torch.cat([w[ffn + "w1.weight"], w[ffn + "w3.weight"]])
        common = w[p + "operator_norm.weight"], w[p + "ffn_norm.weight"], w13, w[ffn + "w2.weight"]
        if attention:
            a = p + "self_attn."
            qkv = torch.cat([w[a + f"{n}_proj.weight"] for n in "qkv"])
            norms = torch.stack([w[a + f"{n}_layernorm.weight"] for n in "qk"])
            return _Layer(*common, True, place, qkv, w[a + "out_proj.weight"], norms)
        c = p + "conv."
        taps = w[c + "conv.weight"][:, 0]
        return _Layer(*common, False, place, w[c + "in_proj.weight"], w[c + "out_proj.weight"], taps)

    def _rms(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), weight, self.eps)

    def _rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin

    def _qkv(self, layer: _Layer, h: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compute query, key, value, each [..., heads, head]."""
        y = F.linear(h, layer.inner)
        y = y.view(*y.shape[:-1], -1, self.head)
        q, k, v = torch.split(y, [self.heads, self.kv, self.kv], -2)
        q, k = self._rms(q, layer.own[0]), self._rms(k, layer.own[1])
        return self._rotate(q, cos, sin), self._rotate(k, cos, sin), v

    def _ffn(self, layer: _Layer, x: Tensor) -> Tensor:
        gate, up = F.linear(self._rms(x, layer.ffn_norm), layer.w13).chunk(2, -1)
        return x + F.linear(F.silu(gate) * up, layer.w2)

    def _forward(self, prompt: tuple[int, ...]) -> _Filled:
        """Forward one padded prompt; several at once are not faster on a CPU."""
        length, padded = len(prompt), self._rounded(len(prompt))
        ids = torch.zeros(padded, dtype=torch.long)
        ids[:length] = torch.tensor(prompt)
        x = F.embedding(ids, self.embedding)
        cos, sin = self.cos[:padded, None], self.sin[:padded, None]
        cached, taps = list[tuple[Tensor, Tensor]](), list[Tensor]()
        for layer in self.layers:
            h = self._rms(x, layer.operator_norm)
            if layer.attention:
                q, k, v = (t.transpose(0, 1)[None] for t in self._qkv(layer, h, cos, sin))
                cached.append((k[0, :, :length].clone(), v[0, :, :length].clone()))
                mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
                mixed = mixed[0].transpose(0, 1).reshape(padded, self.width)
            else:
                b, c, z = F.linear(h, layer.inner).chunk(3, -1)
                bz = F.pad(b * z, (0, 0, self.reach, 0))
                taps.append(bz[length : length + self.reach].clone())
                mixed = c * sum(bz[j : j + padded] * layer.own[:, j] for j in range(self.reach + 1))
            x = self._ffn(layer, x + F.linear(mixed, layer.out))
        after = self._logits(x[length - 1 : length])[0]
        after[self.end] = -torch.inf  # an empty reply is read as a failure of the server
        return cached, taps, after

    def _decode(self) -> Tensor:
        """Compute logits [n, V] of the next token of every active row."""
        n = len(self.active)
        rows = torch.arange(n)
        # At least _LEAST_ROWS rows; those of free slots are padding.
        x = F.embedding(self.last[: max(n, _LEAST_ROWS)], self.embedding)
        position = self.position[:n]
        longest = self._rounded(int(position.max()) + 1)
        at = self.position[: len(x)]
        cos, sin = self.cos[at][:, None], self.sin[at][:, None]
        hidden = torch.arange(longest) > position[:, None, None, None]
        hidden_from = torch.zeros(n, 1, 1, longest).masked_fill_(hidden, -1e9)
        for layer in self.layers:
            h, i = self._rms(x, layer.operator_norm), layer.place
            if layer.attention:
                q, k, v = self._qkv(layer, h, cos, sin)
                self.keys[i][rows, :, position], self.values[i][rows, :, position] = k[:n], v[:n]
                keys, values = self.keys[i, :n, :, :longest], self.values[i, :n, :, :longest]
                grouped = q[:n].reshape(n, self.kv, self.heads // self.kv, self.head)
                scores = torch.matmul(grouped, keys.transpose(-1, -2)) * self.head**-0.5 + hidden_from
                mixed = torch.matmul(scores.softmax(-1), values).reshape(n, self.width)
                mixed = F.pad(mixed, (0, 0, 0, len(x) - n)) if n < len(x) else mixed
            else:
                b, c, z = F.linear(h, layer.inner).chunk(3, -1)
                seen = torch.cat([self.taps[i, : len(x)], (b * z)[:, None]], 1)
                mixed = c * (seen * layer.own.T).sum(1)
                self.taps[i, :n] = seen[:n, 1:]
            x = self._ffn(layer, x + F.linear(mixed, layer.out))
        return self._logits(x)[:n]

    def _rounded(self, length: int) -> int:
        return min(-(-length // _LENGTH_STEP) * _LENGTH_STEP, self.max_length)

    def _logits(self, x: Tensor) -> Tensor:
        """Compute logits [n, V] of the rows ``x`` [n, width]."""
        rows = x if len(x) >= _LEAST_ROWS else F.pad(x, (0, 0, 0, _LEAST_ROWS - len(x)))
        return F.linear(self._rms(rows, self.norm), self.embedding)[: len(x)]

    @staticmethod
    def _sample(logits: Tensor, requests: list[NanoRequest]) -> Tensor:
        """Sample ids [n]: greedy at temperature 0, else the Gumbel trick on the logits after temperature and top-p."""
        chosen = logits.argmax(-1)
        warm = [i for i, r in enumerate(requests) if r.temperature > 0]
        if not warm:
            return chosen
        hot = logits[warm] / torch.tensor([[requests[i].temperature] for i in warm])
        top_p = torch.tensor([[requests[i].top_p] for i in warm])
        if bool((top_p < 1).any()):
            ranked, order = hot.softmax(-1).sort(descending=True)
            cut = ranked.cumsum(-1) - ranked >= top_p
            hot = hot.masked_fill(torch.zeros_like(cut).scatter(1, order, cut), -torch.inf)
        noise = torch.empty_like(hot)
        for row, i in enumerate(warm):
            noise[row].exponential_(generator=requests[i].generator)
        chosen[warm] = (hot - noise.log()).argmax(-1)
        return chosen

    @property
    def free(self) -> int:
        return self.slots - len(self.active)

    @torch.inference_mode()
    def admit(self, requests: list[NanoRequest]) -> list[NanoRequest]:
        """Prefill up to ``free`` requests; returns those that ended with their first token."""
        first, logits = len(self.active), []
        for slot, r in enumerate(requests, start=first):
            if r.seed is not None:
                r.generator = torch.Generator().manual_seed(r.seed)
            cached, taps, after = self._filled(tuple(r.prompt))
            length = self.position[slot] = len(r.prompt)
            for i, (key, value) in enumerate(cached):
                self.keys[i, slot, :, :length], self.values[i, slot, :, :length] = key, value
            for i, inputs in enumerate(taps):
                self.taps[i, slot] = inputs
            logits.append(after)
        self.active += requests
        return self._record(first, self._sample(torch.stack(logits), requests))

    @torch.inference_mode()
    def step(self) -> list[NanoRequest]:
        """Decode one token for every active row; returns the requests that ended."""
        chosen = self._sample(self._decode(), self.active)
        self.position[: len(self.active)] += 1
        return self._record(0, chosen)

    def _record(self, first: int, chosen: Tensor) -> list[NanoRequest]:
        self.last[first : first + len(chosen)] = chosen
        ended = []
        for slot, token in reversed(list(enumerate(chosen.tolist(), start=first))):
            r = self.active[slot]
            if token == self.end:
                r.finish_reason = "stop"
            else:
                r.output.append(token)
                if len(r.output) >= min(r.max_tokens, self.max_length - len(r.prompt)):
                    r.finish_reason = "length"
            if r.finish_reason:
                ended.append(r)
                self._remove(slot)
        return ended

    def _remove(self, slot: int) -> None:
        last = len(self.active) - 1
        if slot != last:
            self.active[slot] = self.active[last]
            end = int(self.position[last]) + 1
            for cache in (self.keys, self.values):
                cache[:, slot, :, :end] = cache[:, last, :, :end]
            self.taps[:, slot] = self.taps[:, last]
            self.last[slot], self.position[slot] = self.last[last], self.position[last]
        self.active.pop()

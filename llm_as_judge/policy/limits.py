"""How much the policy computes at once. The estimates of ``plan`` use most of these numbers, without torch."""

#: Below this number of parameters, operations are too short for several threads or lower precision to pay off.
SMALL_MODEL = 20_000_000
#: Tokens that a forward pass of padded prompts takes at most, unless one prompt is longer.
PREFILL_TOKENS = 2**14
#: Tokens of keys and values that a decoding batch holds at most, unless one prompt's sequences need more: 15 GB for
#: Qwen2.5-7B.
CACHE_TOKENS = 2**18
#: Sequences that are decoded at once.
MAX_SEQUENCES = 256
#: Logits are computed for at most this many elements at a time, and again in the backward pass.
LOGIT_ELEMENTS = 2**26
#: The same on a CPU. More leave its cache: with SmolLM2 at 2**26, scoring took 1.16 and an update 1.05 times as long.
CPU_LOGIT_ELEMENTS = 2**22
#: Samples that an evaluation asks the engine for at a time.
EVALUATED_AT_ONCE = 64
#: Completion tokens that a CPU forwards at a time. More leave its cache: all at once took 1.3 to 1.5 times as long
#: (benchmarks/update.py), at two to three times the memory.
CPU_ROW_TOKENS = 1024

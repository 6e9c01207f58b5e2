#!/usr/bin/env bash
# Serve with vLLM what config/training.yaml asks for; PYTHON=.venv-vllm/bin/python names vLLM's environment:
#   scripts/launch_vllm.sh           GPT-OSS-120B, executor and judge, at http://127.0.0.1:8002/v1: one GPU of 80 GB
#   scripts/launch_vllm.sh policy    the policy with its adapters, at http://127.0.0.1:8003/v1, for generation.engine=vllm:
#                                    35 % of the GPU of 80 GB on which training runs (--device cuda:0). Training finds it
#                                    by VLLM_BASE_URL, and without that starts one of its own.
# The executor takes the last GPU, the policy the first. EXECUTOR_GPUS=1,2 and POLICY_GPU=0 choose others; several are
# used in parallel. Further arguments go to vLLM, and win. Names and ports are those of .env and the configuration.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@" # started by sh
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ -f .env ]]; then
    set -a
    # shellcheck source=/dev/null
    source .env
    set +a
fi

what=executor
if [[ ${1:-} == policy || ${1:-} == executor ]]; then
    what=$1
    shift
fi

gpus=$( (nvidia-smi --list-gpus 2>/dev/null || true) | wc -l)
if [[ $what == policy ]]; then
    devices=${POLICY_GPU:-0}
    export VLLM_ALLOW_RUNTIME_LORA_UPDATING=True
    # --max-model-len: training.prompt_max_length and response_max_length. --max-loras: the newest adapter and the one
    # before it. --logprobs-mode: those of the distribution sampled from. The rest of the memory is the trainer's.
    options=(
        --model "${QWEN_MODEL_PATH:-Qwen/Qwen2.5-7B-Instruct}" --port "${PORT:-8003}" --max-model-len 6144
        --gpu-memory-utilization 0.35 --enable-lora --max-lora-rank 64 --max-loras 2
        --logprobs-mode processed_logprobs
    )
else
    devices=${EXECUTOR_GPUS:-$((gpus > 1 ? gpus - 1 : 0))}
    if ((gpus == 1)); then
        printf 'one GPU: the executor fills it, so train elsewhere, or use an executor that is served elsewhere\n' >&2
    fi
    # --served-model-name: the name in the configuration, wherever the weights lie.
    # --max-model-len: workflows ask short questions; the full 131072 would take the memory of the batch.
    options=(
        --model "${GPT_OSS_MODEL_PATH:-openai/gpt-oss-120b}" --served-model-name gpt-oss-120b --port "${PORT:-8002}"
        --max-model-len 16384
    )
fi
commas=${devices//[^,]/}

if ! "${PYTHON:-python3}" -c 'import importlib.util, sys; sys.exit(not importlib.util.find_spec("vllm"))'; then
    printf 'error: %s cannot import vllm; install it in an environment of its own (docs/training.md) and name that: %s\n' \
        "${PYTHON:-python3}" "PYTHON=.venv-vllm/bin/python $0" >&2
    exit 2
fi

# The module, not `vllm serve`: the console script fails in builds whose distribution is not called "vllm".
# --enable-prefix-caching: prompts repeat long instructions, so most of one has been seen before.
# --generation-config: defaults of the API, not of the model's files; requests leave out values that are the API's default.
# 127.0.0.1: the server has no password unless VLLM_API_KEY is set.
CUDA_VISIBLE_DEVICES=$devices exec "${PYTHON:-python3}" -m vllm.entrypoints.openai.api_server \
    --host "${HOST:-127.0.0.1}" \
    --tensor-parallel-size $((${#commas} + 1)) \
    --enable-prefix-caching --generation-config vllm \
    "${options[@]}" \
    "$@"

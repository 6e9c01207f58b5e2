#!/usr/bin/env bash
# Serve GPT-OSS-120B, the executor and judge of config/training.yaml, at http://127.0.0.1:8002/v1.
# Needs vLLM (pip install 'llm-as-judge[vllm]') and one GPU with 80 GB; further arguments go to vLLM, for
# instance --tensor-parallel-size 2.
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ -f .env ]]; then
    set -a
    # shellcheck source=/dev/null
    source .env
    set +a
fi

# The module, not `vllm serve`: the console script fails in builds whose distribution is not called "vllm".
# --served-model-name: the name in the configuration, wherever the weights lie.
# --max-model-len: workflows ask short questions; the full 131072 would take the memory of the batch.
# --enable-prefix-caching: operators repeat long instructions, so most of a prompt has been seen before.
# 127.0.0.1: the server has no password unless VLLM_API_KEY is set.
exec "${PYTHON:-python3}" -m vllm.entrypoints.openai.api_server \
    --model "${GPT_OSS_MODEL_PATH:-openai/gpt-oss-120b}" \
    --served-model-name gpt-oss-120b \
    --host "${HOST:-127.0.0.1}" \
    --port "${PORT:-8002}" \
    --max-model-len 16384 \
    --enable-prefix-caching \
    "$@"

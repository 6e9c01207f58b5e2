#!/bin/sh
# Makes the nano executor and policy anew: sh scripts/pretrain.sh PYTHON [options of embedded.pretrain]
# An interrupted run goes on from its checkpoint. On two cores 13 million tokens take about an hour.
set -eu
python=$1
shift
# glibc otherwise returns freed memory to the system after every tensor, which costs most of the time.
export MALLOC_MMAP_THRESHOLD_=4000000000 MALLOC_TRIM_THRESHOLD_=8000000000 MALLOC_TOP_PAD_=268435456
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
weights=llm_as_judge/embedded/weights
"$python" -m llm_as_judge.embedded.pretrain --workers 2 "$@"
"$python" -m llm_as_judge.embedded.pretrain --export "$weights/executor"
"$python" -m llm_as_judge.embedded.warm_start --out "$weights/policy"

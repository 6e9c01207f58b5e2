#!/usr/bin/env bash
# Download, process, train, evaluate:
#   scripts/run_full_pipeline.sh [--model qwen25-7b] [--device cuda:0] [--skip-download] [--skip-process]
# --raw DIR      folder of the raw files (data/raw)
# --data DIR     folder of what is made of them (data)
# --steps N      optimiser steps; by default those of the configuration
# --limit N      problems evaluated of every test set; by default all of them
# --sample       see it run through: a mix of 600, 2 steps, 4 problems a test set, whatever splits --raw holds
# --set N=V      a setting of training and evaluation; repeatable
# --model nano trains the package's own small policy, with its small executor; on real benchmarks it scores about nothing.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@" # started by sh
set -euo pipefail
cd "$(dirname "$0")/.."

usage() { sed -n '2,10s/^# \{0,1\}//p' "$0"; }

model=qwen25-7b device=auto raw=data/raw data=data steps= limit= sample= skip_download= skip_process=
settings=()
while (($#)); do
    case $1 in
        --skip-download) skip_download=1; shift; continue ;;
        --skip-process) skip_process=1; shift; continue ;;
        --sample) sample=1; shift; continue ;;
        -h | --help) usage; exit 0 ;;
        --model | --device | --raw | --data | --steps | --limit | --set) ;;
        *) printf 'error: unknown option %s\n' "$1" >&2; usage >&2; exit 2 ;;
    esac
    if (($# < 2)); then
        printf 'error: %s needs a value\n' "$1" >&2
        exit 2
    fi
    case $1 in
        --model) model=$2 ;;
        --device) device=$2 ;;
        --raw) raw=$2 ;;
        --data) data=$2 ;;
        --steps) steps=$2 ;;
        --limit) limit=$2 ;;
        --set) settings+=(--set "$2") ;;
    esac
    shift 2
done

# The interpreter that is named, else that of the active environment, else that of `make setup`.
python=${PYTHON:-${VIRTUAL_ENV:-.venv}/bin/python}
llm_as_judge() { "$python" -m llm_as_judge.commands.app "$@"; }

process=()
if [[ -n $sample ]]; then
    process=(--any-split --train-size 600 --test-size 60)
    steps=${steps:-2} limit=${limit:-4}
fi
config=config/training.yaml
[[ $model == nano ]] && config=config/embedded.yaml

if [[ -z $skip_download ]]; then
    printf '== download\n'
    llm_as_judge data download --raw "$raw"
fi
if [[ -z $skip_process ]]; then
    printf '== process\n'
    llm_as_judge data process --raw "$raw" --out "$data" ${process[@]+"${process[@]}"}
fi

settings=(
    --set "data.train_dataset=$data/mixed/train_mixed.jsonl"
    --set "data.test_dataset=$data/mixed/test_mixed.jsonl"
    ${settings[@]+"${settings[@]}"}
)
if [[ -e $data/mixed/val_mixed.jsonl ]]; then
    settings+=(--set "data.val_dataset=$data/mixed/val_mixed.jsonl")
fi
if [[ -n $limit ]]; then
    settings+=(--set "data.eval_problems=$limit")
fi

printf '== train\n'
llm_as_judge train --config "$config" --model "$model" --device "$device" ${steps:+--max-steps "$steps"} "${settings[@]}"

printf '== evaluate\n'
files=()
for file in "$data"/test/*_test.jsonl; do
    files+=(--data "$file")
done
llm_as_judge evaluate --config "$config" --model "$model" --device "$device" \
    "${files[@]}" ${limit:+--limit "$limit"} "${settings[@]}"

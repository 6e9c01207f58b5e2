"""Starts SkyRL's server of the Tinker API, from a pip installation: `python tinker_skyrl.py --base-model DIR ...`.

Two repairs for Python 3.11, neither changes what is computed: SkyRL's API process starts its engine by `uv run`, which
a pip installation lacks; and on Python 3.11 pydantic refuses `typing.TypedDict`, which SkyRL uses.
"""

import argparse
import os
import sys
import typing

if sys.version_info < (3, 12):
    import typing_extensions

    typing.TypedDict = typing_extensions.TypedDict

os.environ.setdefault("JAX_PLATFORMS", "cpu")

if sys.argv[1:2] == ["engine"]:
    del sys.argv[1]
    from skyrl.tinker.engine import main

    main()
    sys.exit()

import uvicorn
from skyrl.tinker import api
from skyrl.tinker.config import EngineConfig, add_model, config_to_argv

api._build_uv_run_cmd_engine = lambda parent, config: [
    sys.executable,
    os.path.abspath(__file__),
    "engine",
    *config_to_argv(config),
]
parser = argparse.ArgumentParser()
add_model(parser, EngineConfig)
parser.add_argument("--host", default="127.0.0.1")
parser.add_argument("--port", type=int, default=8111)
args = vars(parser.parse_args())
host, port = args.pop("host"), args.pop("port")
api.app.state.engine_config = EngineConfig.model_validate(args)
uvicorn.run(api.app, host=host, port=port, log_level="warning")

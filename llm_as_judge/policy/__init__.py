"""The policy: weights, sampling and scoring."""

import logging

# PEFT imports it where it is installed, and it warns of an optional package on some CPUs.
logging.getLogger("bitsandbytes").setLevel(logging.ERROR)

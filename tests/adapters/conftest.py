"""The adapters' tests run where the frameworks are: in the environment that `make adapters` makes and uses."""

import os
from importlib.util import find_spec

# The frameworks would send home what they do.
os.environ |= {
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "LANGSMITH_TRACING": "false",
    "OTEL_SDK_DISABLED": "true",
}

collect_ignore_glob = [] if find_spec("langgraph") else ["*"]

if not collect_ignore_glob:
    # Of servers in processes of their own nothing new is learned, and frameworks are slow to import when measured.
    for _name in [name for name in os.environ if name.startswith("COVERAGE_")]:
        del os.environ[_name]

"""The process of our server: `app.serving.serve` as it is, with the bench's agent and a data directory of its own."""

import sys
from pathlib import Path

from app.serving import serve
from app.settings import Settings
from bench.agent import BenchAgent

if __name__ == "__main__":
    port, data_dir = int(sys.argv[1]), Path(sys.argv[2])
    sys.exit(serve(Settings(port=port, data_dir=data_dir, log_level="warning"), BenchAgent()))

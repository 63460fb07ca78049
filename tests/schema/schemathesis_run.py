"""Starts a server and runs schemathesis on what its /openapi.json says.

    schemathesis_run.py KVERN MODEL [FLAG...]
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
import harness  # noqa: E402
from serving import Server  # noqa: E402

SCHEMATHESIS = Path(sys.executable).parent / "schemathesis"
FLAGS = ["-n", "8", "--seed", "7", "--generation-database", "none", "--continue-on-failure",
         "--no-color"]
# A short context: a request without max_tokens fills it.
SERVER_FLAGS = ["-c", "256", "--kv-tokens", "40000"]


def main():
    if len(sys.argv) < 3:
        sys.exit("usage: schemathesis_run.py KVERN MODEL [SCHEMATHESIS_FLAG...]")
    harness.program = Path(sys.argv[1]).resolve()
    with Server(*SERVER_FLAGS, model=sys.argv[2]) as server:
        done = subprocess.run(
            [SCHEMATHESIS, "--config-file", HERE / "schemathesis.toml", "run", *FLAGS,
             *sys.argv[3:], f"http://127.0.0.1:{server.port}/openapi.json"],
            cwd=server.folder.name)  # it keeps what it found where it runs, and tries that again
        status, _, _ = server.get("/health")
        if status != 200:
            sys.exit(f"the server is not well afterwards: {status}\n{server.log}")
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()

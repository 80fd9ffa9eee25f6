"""Run twice by test_distributed.py, as SLURM would start it: a run whose particles two processes share, interrupted in
one of them and resumed; and a failure of one that both are told. Prints JSON.

    two_processes.py SPEC FOLDER
"""

import json
import sys

import jax

from mflandscape import distributed, runner
from mflandscape.cli.devices import output_kept, prepare
from mflandscape.distributed import largest, step_of_all
from mflandscape.spec import Spec


def attempt(action):
    try:
        return action()
    except ValueError as error:
        return str(error)


def fail():
    with step_of_all("fail"):
        if jax.process_index() == 1:
            raise ValueError("no disk")


def main():
    spec, out = Spec.from_dict(json.loads(sys.argv[1])), sys.argv[2]
    prepare(devices=1)
    distributed._CHUNK_SECONDS = 1e-9  # a look a chunk
    asked = []

    def stop_in_one():
        asked.append(1)
        return jax.process_index() == 1 and len(asked) == 3

    with output_kept():
        first = runner.run(spec, out, interrupted=stop_in_one, shard="particles")
        other = attempt(lambda: runner.run(spec.replace(dt=0.05), out, resume=True))
        second = runner.run(spec, out, resume=True)
        told = {
            "devices": [jax.device_count(), jax.local_device_count()],
            "largest": largest(float(jax.process_index()), 2.0),
            "chunks": len(asked),
            "interrupted": [first.interrupted, second.interrupted],
            "members": len(second.members),
            "fresh steps": second.useful,
            "failure": attempt(fail),
            "other spec": other,
        }
    print(json.dumps(told))


if __name__ == "__main__":
    main()

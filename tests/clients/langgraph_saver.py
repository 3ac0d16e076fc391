"""Keeps contexts with LangGraph's SqliteSaver in a file: langgraph_saver.py DATABASE

Reads one JSON array a line, does what it says, and answers with the nanoseconds that took, measured around the saver's own call:
["put", CONTEXT], ["latest"], ["by_id", N] (the N-th that was put), ["list", LIMIT].
"""

import json
import sys
from time import perf_counter_ns

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver

THREAD = {"configurable": {"thread_id": "bench", "checkpoint_ns": ""}}


def put(saver: SqliteSaver, configs: list, context: dict) -> int:
    checkpoint = empty_checkpoint()
    version = f"{len(configs) + 1:032}.0"
    checkpoint["channel_values"] = {"context": context}
    checkpoint["channel_versions"] = {"context": version}
    before = configs[-1] if configs else THREAD
    metadata = {"source": "loop", "step": len(configs), "parents": {}}
    started = perf_counter_ns()
    configs.append(saver.put(before, checkpoint, metadata, {"context": version}))
    return perf_counter_ns() - started


def get(saver: SqliteSaver, config: dict) -> int:
    started = perf_counter_ns()
    found = saver.get_tuple(config)
    elapsed = perf_counter_ns() - started
    assert found is not None and found.checkpoint["channel_values"]["context"]
    return elapsed


def list_newest(saver: SqliteSaver, limit: int) -> int:
    started = perf_counter_ns()
    found = list(saver.list(THREAD, limit=limit))
    elapsed = perf_counter_ns() - started
    assert found
    return elapsed


def main(database: str) -> None:
    configs: list = []
    with SqliteSaver.from_conn_string(database) as saver:
        for line in sys.stdin:
            match json.loads(line):
                case ["put", context]:
                    elapsed = put(saver, configs, context)
                case ["latest"]:
                    elapsed = get(saver, THREAD)
                case ["by_id", n]:
                    elapsed = get(saver, configs[n])
                case ["list", limit]:
                    elapsed = list_newest(saver, limit)
                case other:
                    raise ValueError(f"unknown command {other}")
            print(elapsed, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])

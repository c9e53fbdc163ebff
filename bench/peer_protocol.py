"""What the PyTorch peers of `millrace bench` share: arguments, lines of JSON, steps on request."""

import argparse
import json
import resource
import sys


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not a positive number")
    return value


def emit(record):
    print(json.dumps(record), flush=True)


def peak_rss_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def serve(step, ready):
    """Says that it is ready, then answers each line "step", until "quit" or the end."""
    emit({"ready": True, **ready})
    for line in sys.stdin:
        command = line.strip()
        if command == "step":
            emit(step())
        elif command == "quit":
            break
        else:
            sys.exit(f"Unknown command '{command}'; send 'step' or 'quit'.")

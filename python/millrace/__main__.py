"""The command line: python -m millrace, or the script millrace."""
import os
import sys


def main():
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "millrace")
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()

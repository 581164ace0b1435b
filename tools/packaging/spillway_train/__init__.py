"""The command `spillway` as a Python package: the program and its libraries lie in this folder.

Not here: the program itself, which needs no Python.
"""
import os
import sys


def main():
    """Becomes the program, with the same words: signals and exit codes are then its own."""
    program = os.path.join(os.path.dirname(os.path.realpath(__file__)), "bin", "spillway")
    os.execv(program, [program, *sys.argv[1:]])

"""`python -m spillway_train` is the command `spillway`."""
from . import main

main()

"""`python -m loadgen.emulator --profile NAME --port N ...`: what `server.launch` starts for an arm."""

import sys

from loadgen.emulator.serve import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

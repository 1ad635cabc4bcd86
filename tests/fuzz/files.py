"""A folder in memory for readers that take a path."""

import atexit
import shutil
import tempfile
from pathlib import Path


def folder() -> Path:
    """A fresh folder, in memory where the system has one; it goes when the program does."""
    memory = Path("/dev/shm")
    made = Path(tempfile.mkdtemp(prefix="fuzz-", dir=memory if memory.is_dir() else None))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made

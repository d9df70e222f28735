"""The wheel also holds data (packages/with_data.py); everything else is in pyproject.toml."""

import sys
from pathlib import Path

from setuptools import setup

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from with_data import BuildWithData

setup(cmdclass={"build_py": BuildWithData})

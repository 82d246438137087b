"""The pack as the engine starts it, a folder or `run`: it serves until the engine ends it."""

import sys
from pathlib import Path

from pulumi_policy import PolicyPack

# Started as a script: only this folder is on the path, not the one that makes it a package.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from policy.pack import PACK_NAME, policies

PolicyPack(name=PACK_NAME, policies=list(policies()))

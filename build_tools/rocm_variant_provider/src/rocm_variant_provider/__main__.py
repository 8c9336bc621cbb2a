"""Print what is reported of this machine, as JSON; what could not be found out goes to stderr."""

from __future__ import annotations

import json
import sys

from . import get_supported_configs

try:
    print(json.dumps({config.name: config.values for config in get_supported_configs()}))
except ValueError as wrong:
    sys.exit(f"error: {wrong}")

"""From a source tree to a wheel: environment, front end, build trees, reading of failures."""

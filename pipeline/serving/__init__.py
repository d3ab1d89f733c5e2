"""The HTTP service over the builds of a run."""

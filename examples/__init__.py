"""Example workflows, and the demo that runs them on a local AWS."""

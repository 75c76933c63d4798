"""Figures: what torpor costs, beside what its peers cost in the same run. `python -m bench` takes them all."""

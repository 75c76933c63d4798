"""A history as a run holds it: loaded and looked up, changed and found to differ, committed, made to go on."""

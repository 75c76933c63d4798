"""What authors hold: workflows and activities by name, and the context with each operation that they may perform."""

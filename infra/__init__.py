"""Deploy time: packaging, the local stack, the locks and the command line; imported by no handler."""

"""Which waiting job an offer is given."""

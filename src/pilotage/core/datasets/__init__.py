"""Data sets: files grouped in blocks, their replicas at sites, and the manifests that list them."""

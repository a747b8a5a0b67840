"""OpenID Connect providers: the documents that they publish."""

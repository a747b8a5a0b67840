"""Who somebody is: the user and the groups that the claims of an outside issuer stand for."""

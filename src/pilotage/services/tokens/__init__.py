"""Tokens of people and pilots: made, listed, revoked; rotation of the key that signs them."""

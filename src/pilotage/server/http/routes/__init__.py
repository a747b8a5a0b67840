"""The addresses of people's programs, by noun."""

"""How many pilots to start, and which to send away: facts in, a plan out."""

"""What the Redis store is made of: its scripts, and the two wires that carry them. `soloist/stores/redis.py` is the store."""

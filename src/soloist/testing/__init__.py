"""What tests are made of: the contract that every store runs, the simulator, a bad line."""

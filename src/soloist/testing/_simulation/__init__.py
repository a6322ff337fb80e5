"""The parts of `soloist.testing.simulator`: time, the network and its server, a process, what it does, what befalls it."""

"""The algorithms, one a file, named by what they do. No I/O, no clock and no chance of their own: see `soloist._world`."""

"""What ./dev runs: nothing here is installed with the project."""

"""Where a program can go, and what the user holds then."""

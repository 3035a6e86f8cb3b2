"""What is done with finished feature sets: verify, describe, export, merge, import."""

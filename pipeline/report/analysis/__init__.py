"""What a report finds in the results."""

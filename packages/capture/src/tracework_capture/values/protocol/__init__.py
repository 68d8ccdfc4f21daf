"""What a value is, and what is done with any two of them."""

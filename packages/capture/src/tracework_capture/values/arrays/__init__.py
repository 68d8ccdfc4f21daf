"""NumPy's arrays and its functions, in a graph of tensors."""

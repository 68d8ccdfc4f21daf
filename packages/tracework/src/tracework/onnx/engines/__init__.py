"""The engines: each module imports its package when a graph is compiled; the rows are in onnx_engines.py."""

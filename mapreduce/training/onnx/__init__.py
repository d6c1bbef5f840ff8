"""Fitted models as graphs of ONNX, which other programs compute."""

"""Reads PyTorch training scripts without running them."""

__version__ = "0.1.0"

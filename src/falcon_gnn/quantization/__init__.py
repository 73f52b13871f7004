"""Activation compression: the b-bit codec, bit masks, layers that keep their activations compressed, and hooks."""

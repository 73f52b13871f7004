"""Figures and a self-contained page about a collapse and what was trained on it; needs the extra ``report``."""

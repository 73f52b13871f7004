"""Memory before it is used: budgets as text, what a training step needs, and the most that fits."""

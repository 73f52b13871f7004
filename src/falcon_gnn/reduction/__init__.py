"""The reductions: the collapse (centrality, feature-label clusters, budgets, contraction, report) and a baseline."""

"""Usage, cost and budgets of model calls."""

__all__: list[str] = []

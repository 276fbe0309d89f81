"""How long jobs run: survival models on their history, and predicted step times."""

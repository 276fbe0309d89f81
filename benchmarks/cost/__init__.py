"""How well training cost is predicted, on networks, sizes and devices held out."""

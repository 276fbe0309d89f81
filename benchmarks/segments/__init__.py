"""How fast, and how well, users are told apart by the shape of their usage."""

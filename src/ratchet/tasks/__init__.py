"""Tasks: problems made from verified environments, the gate that they pass, and how solutions are graded."""

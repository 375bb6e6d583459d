"""What a step of the planner costs, what many runs at once hold, and how soon a long run goes on."""

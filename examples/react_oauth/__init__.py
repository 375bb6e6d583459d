"""A React page that asks an agent, and lets its user sign in where a tool needs an account."""

"""HTTP as tools see it: requests planned, credentials presented, answers read, failures told."""

"""Accounts of people: how long a sign-in takes on our side, and renewals that many processes want at once."""

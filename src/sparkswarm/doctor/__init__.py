"""``sparkswarm doctor``: what this machine has of what sparkswarm needs, and what to do."""

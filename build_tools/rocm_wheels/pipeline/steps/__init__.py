"""What each kind of step does when its turn comes."""

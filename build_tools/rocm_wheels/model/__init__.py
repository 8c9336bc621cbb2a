"""What the words of the project mean: frozen records and the rules about them."""

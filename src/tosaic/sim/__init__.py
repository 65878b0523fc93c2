"""What runs a compiled artifact on this computer."""

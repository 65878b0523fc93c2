"""What runs compiled models here, and what compares them with the original."""

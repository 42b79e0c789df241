"""Sessions: their files, the repair of damage, and legal histories made of them."""

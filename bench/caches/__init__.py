"""What caches and routing by content are worth."""

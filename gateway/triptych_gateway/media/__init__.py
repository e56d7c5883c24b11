"""From a picture's reference in a request to its pixels, trusting neither."""

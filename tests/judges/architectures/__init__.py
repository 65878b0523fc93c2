"""Networks in the manner of published architectures, small, with drawn statistics."""

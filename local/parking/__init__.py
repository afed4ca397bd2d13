"""A campaign of kills against a consumer that parks keys: order, and every effect once."""

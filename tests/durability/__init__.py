"""A broker that is killed, again and again, while clients publish, pull and acknowledge."""

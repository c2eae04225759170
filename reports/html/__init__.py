"""The HTML report: what it shows, as plain values, and the page made of them."""

"""What `polyhead bench` measures: every claim about speed, against a competitor in the same run."""

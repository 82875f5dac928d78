"""Studies: a grid of trained models from one YAML file, their statistics, tables, figures and page."""

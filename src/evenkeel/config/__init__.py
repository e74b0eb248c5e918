"""The configuration: one YAML file, validated once, cut into one section per stage."""
